"""Find the entries that explain a text: by their messages, or else by its words."""

from collections.abc import Sequence
from typing import NamedTuple

from keepfed.field_guide.entry import ROLES, Entry, elsewhere, entries, table
from keepfed.field_guide.log import PATTERNS, Span, errors, origin, places, plain
from keepfed.field_guide.words import likenesses
from keepfed.formatting import wrap

_AROUND = 2000  # number of characters before a hint that show whether it is about loading data
_FAR = 10_000  # number of characters between a match and the last error of which it is the cause
_NEAR = 0.34  # likeness of an entry that is offered as a question
_MOST = 3  # entries that are offered
_WORKER = "in dataloader worker process"  # its errors are about loading, whatever they say


class Answer(NamedTuple):
    """What a text is about: entries that explain it, entries that may, or something else."""

    entries: Sequence[Entry] = ()
    near: Sequence[Entry] = ()
    elsewhere: str = ""


def look_up(text: str) -> list[Entry]:
    """Return the entries that explain a message or log, or are nearest to a few plain words."""
    known = answer(text)
    return list(known.entries or (() if PATTERNS["message"].search(text[:1000]) else known.near))


def answer(text: str) -> Answer:
    """Return what the field guide knows about a message, a log, or a problem in plain words.

    1. An entry matches a text with one of its messages, or with a hint near a sign of loading.
    2. A match inside a longer match of another entry does not count.
    3. Causes win over errors of the caller's code, consequences of other problems, and noise. The
       last two must explain all errors.
    4. The match nearest to the last error comes first. Matches far from it are noise.
    5. If nothing matches, the entries with similar words are offered as a question.
    """
    said = plain(text)
    raised = errors(text, said)
    last = raised[-1] if raised else (len(said), len(said))
    matches = _matches(said)
    ranked = sorted(matches, key=lambda row: (row.rank, *_distance(last, matches[row])))
    spans = [span for row in matches for span in matches[row]]
    gaps = [_distance(error, spans)[0] for error in raised if spans] or [0]
    follows = bool(ranked) and ROLES[ranked[0].rank] in ("consequence", "noise")
    if not ranked or (follows and any(gaps)) or gaps[-1] > _FAR:
        return _question(said[slice(*last)] if raised else said, text)
    if ranked[0].topic == "elsewhere":
        return Answer(elsewhere=ranked[0].title)
    return Answer([r for r in ranked if r.rank == ranked[0].rank and r.topic != "elsewhere"])


def explain(text: str) -> str:
    """Return what `keepfed why` prints: the entries, a question, or the next thing to look at."""
    known, first = answer(text), origin(text)
    if known.entries:
        own = f"In this text: {first}." if known.entries[0].role == "own code" and first else ""
        return "\n\n".join(filter(None, [wrap(own, most=98), *map(str, known.entries)]))
    near = [f"  - {row.title}: `keepfed why {row.name}`" for row in known.near]
    lines, prints = ["Is it one of these?", *near, ""] if near else [], table("words")["prints"]
    if known.elsewhere:
        lines.append(f"Not about loading data: {known.elsewhere}")
    elif first:
        lines.append(f"Not known. The first error is {first}. {prints['start_there']}")
    elif not near:
        lines.append(f"Not known. {prints['not_known']}")
    return wrap("\n".join(lines).rstrip(), indent=4 if near else 0, most=98)


def _question(said: str, text: str) -> Answer:
    """Return the entry that a text names, or those that it may be about."""
    if (name := said.replace(" ", "_")) in entries():
        return Answer([entries()[name]])
    alike = likenesses(said)
    if not said.isalpha() and [*alike.values()].count(1) == 1:  # one word is too general
        return Answer([next(iter(alike))])
    near = [row for row in alike if alike[row] >= _NEAR]
    hints = alike if PATTERNS["message"].search(text[:1000]) else ()
    hinted = [row for row in hints if any(places(hint, said) for hint in row.hints)]
    return Answer(near=list(dict.fromkeys([*hinted, *near]))[:_MOST])


def _matches(said: str) -> dict[Entry, list[Span]]:
    """Return where each entry matches: its messages, and its hints near a sign of loading."""
    signs = table("words")["words"]["loading"]
    rows = [*entries().values(), *(elsewhere() if _WORKER not in said else ())]
    found = [(span, row) for row in rows for one in row.messages for span in places(one, said)]
    hints = [(span, row) for row in rows for one in row.hints for span in places(one, said)]
    for (start, end), row in hints:
        around = said[max(start - _AROUND, 0) : end + _AROUND // 4]
        found += [((start, end), row)] if any(sign in around for sign in signs) else []
    matches: dict[Entry, list[Span]] = {}
    for span, row in found:
        others = [other for other, owner in found if owner is not row and other != span]
        if not any(start <= span[0] and span[1] <= end for start, end in others):
            matches.setdefault(row, []).append(span)
    return matches


def _distance(place: Span, spans: list[Span]) -> tuple[int, int]:
    """Return how far the nearest of some matches is from a place, the longest one first."""
    return min((max(place[0] - end, start - place[1], 0), start - end) for start, end in spans)
