"""Read a message or log: find messages and errors, and the line that raised the first error."""

import re
from collections.abc import Iterator
from functools import cache

from keepfed.field_guide.entry import table

ANY = "…"  # placeholder in a message for text that differs from case to case
_FAR = 300  # maximum number of characters that ANY matches, so that it spans no whole log
_LOG = 2_000_000  # number of characters that are read from the end of a log
_MOST = 100  # places of a message, and errors, that are compared
_QUOTES = dict.fromkeys(map(ord, '`\u2018\u2019\u201c\u201d"'), "'")
PATTERNS = {name: re.compile(pattern, re.M) for name, pattern in table("log").items()}
Span = tuple[int, int]  # start and end in the plain text


def plain(text: str) -> str:
    """Return the end of a text in lower case and one line, without colors, with plain quotes."""
    return " ".join(PATTERNS["colors"].sub("", text[-_LOG:]).translate(_QUOTES).lower().split())


def places(message: str, said: str) -> list[Span]:
    """Return where a message occurs in a plain text: its last places."""
    pattern, parts = _pattern(message)  # to look for the parts first is a hundred times faster
    is_there = all(part in said for part in parts)
    return [match.span() for match in pattern.finditer(said)][-_MOST:] if is_there else []


def errors(text: str, said: str) -> list[Span]:
    """Return where the errors of a log that wrap no other error occur in its plain text."""
    lines = [*dict.fromkeys(plain(match[1]) for match in _errors(text))][-_MOST:]
    return [(start, start + len(line)) for line in lines if (start := said.rfind(line)) >= 0]


def origin(text: str) -> str:
    """Return the first error of a log, and the line of the caller's code that raised it."""
    if not (error := next(_errors(text), None)):
        return ""
    frames = PATTERNS["frame"].finditer(error.string, 0, error.start())
    own = [frame.groups() for frame in frames if not PATTERNS["library"].search(frame[1])]
    where = f" ({own[-1][0]}, line {own[-1][1]}, in {own[-1][2]})" if own else ""
    return error[1][:200].strip(" .") + where


def _errors(text: str) -> Iterator[re.Match[str]]:
    """Yield the errors of a log, without progress bars, ignored exceptions, and wrappers."""
    lines = PATTERNS["colors"].sub("", text[-_LOG:]).replace("\r\n", "\n").replace("\r", "\n")
    matches = PATTERNS["error"].finditer(PATTERNS["ignored"].sub("", lines))
    return (match for match in matches if not PATTERNS["wrapper"].search(match[1]))


@cache
def _pattern(message: str) -> tuple[re.Pattern[str], list[str]]:
    """Return the pattern of a message, and the parts between its placeholders."""
    parts = [part.strip() for part in plain(message).split(ANY)]
    # a message that begins with a word does not begin within one
    start = r"(?<![a-z0-9])" if message[0].isalnum() else ""
    return re.compile(start + f".{{0,{_FAR}}}?".join(map(re.escape, parts))), parts
