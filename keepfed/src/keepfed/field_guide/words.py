"""Compare the words of a text with the titles, symptoms and messages of the entries."""

import re
from functools import cache
from math import fsum, log

from keepfed.field_guide.entry import Entry, entries, table

_WORD = re.compile(r"[a-z][a-z0-9]+|%")
_SUFFIX = re.compile(r"(?<=..[a-z])(ers?|ing|ed|es|e|(?<!s)s)$")


def likenesses(text: str) -> dict[Entry, float]:
    """Return how like the text each entry is, from 0 to 1 (the same words), the nearest first."""
    asked = _words(text)
    alike = {row: max(_likeness(asked, said) for said in texts) for row, texts in _texts().items()}
    return dict(sorted(alike.items(), key=lambda item: -item[1]))


def _likeness(asked: frozenset[str], said: frozenset[str]) -> float:
    """Return how many words two texts have in common. Rare words count more than others."""
    if len(asked & said) < max(1, min(2, len(asked))):  # one of several words may mean a lot
        return 0.0
    return 2 * fsum(map(_weight, asked & said)) / fsum(map(_weight, [*asked, *said]))


def _words(text: str) -> frozenset[str]:
    """Return the stems of the words of a text, with one word for all its synonyms."""
    small = table("words")["words"]["small"].split()
    stems = [_SUFFIX.sub("", word) for word in _WORD.findall(text.lower()) if word not in small]
    return frozenset(_synonyms().get(stem, stem) for stem in stems)


@cache
def _weight(word: str) -> float:
    count = sum(any(word in said for said in texts) for texts in _texts().values())
    return log((len(entries()) + 1) / (count + 0.5))


@cache
def _texts() -> dict[Entry, list[frozenset[str]]]:
    return {r: [*map(_words, (r.title, *r.symptoms, *r.messages))] for r in entries().values()}


@cache
def _synonyms() -> dict[str, str]:
    lines = [line.split() for line in table("words")["words"]["synonyms"].splitlines()]
    return {_SUFFIX.sub("", word): _SUFFIX.sub("", line[0]) for line in lines for word in line}
