"""Names on the leaderboard: valid ones, and which ones look the same."""

from __future__ import annotations

import re
from unicodedata import name as unicode_name
from unicodedata import normalize

LONGEST_NAME = 30
# printable characters that show nothing: variation selectors, joiners, fillers and a blank
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
# lower-case Cyrillic and Greek letters and digits, below the Latin letter that they can look like
_ALIKE = str.maketrans(
    "авеѕіјкмнорстухһԁԛԝӏαβεζηικμνορτυχγıi1|0",  # noqa: RUF001
    "abesljkmhopctyxhdqwlabezhlkmvoptyxyllllo",
)
_WITH_OTHERS = {"CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO"}


def read_name(given: object) -> str:
    """Return a name in normal form.

    Raises:
        ValueError: If the name is invalid. The message gives the reason.
    """
    if not isinstance(given, str):
        raise ValueError("The result has no name. Choose a name.")
    name = " ".join(normalize("NFC", given).split())
    # unprintable characters could reverse or hide the text of a line
    if (
        not 0 < len(name) <= LONGEST_NAME
        or not name.isprintable()
        or _INVISIBLE.search(normalize("NFKC", name) + name)
    ):
        raise ValueError(
            f"A name must have 1 to {LONGEST_NAME} printable characters. Choose another name."
        )
    if not re.search(r"\w", name):
        raise ValueError("A name must contain a letter or a digit. Choose another name.")
    alphabets = {unicode_name(one, "?").split()[0] for one in name if one.isalpha()} - _WITH_OTHERS
    if len(alphabets) > 1:
        raise ValueError("A name must use one alphabet. Choose another name.")
    return name


def looks_of(name: str) -> str:
    """Return a text that is equal for names that look the same."""
    return normalize("NFKC", name).casefold().translate(_ALIKE)
