"""Find the numbers that a deck states, their sources, and slides with too many words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from notebooks.claims import Claim, read_claims
from slides.build.markdown import Deck, Slide
from slides.build.rich_text import SLIDES

GIVEN = "<!-- given -->"
MOST_WORDS = 30  # on a slide, without code, formulas, pictures and sources
PACE = 130  # words a minute in `Say` and `Ask`
SECONDS = {r"\*Ask:\*": 15, "^:::guess": 20, r"^:::demo \w+$": 30}  # silence, a vote, a live demo
_NUMBER = re.compile(
    r"(?<![\w.])\d[\d.,]*(?:\s*(?:to|and|-|\u2013)\s*\d[\d.,]*)?\s?"
    r"(?:%|\u00d7|x\b|times\b|[mµun]?s\b|minutes?\b|seconds?\b|hours?\b|days?\b|years?\b"
    r"|[kKMGTPE]i?B\b|bytes\b|W\b|[a-z]+/s\b|€|\$|euros?\b|dollars?\b"
    r"|thousand\b|[mb]illions?\b|trillions?\b)"
    r"|(?<![\w.])[€$]\s?\d[\d.,]*"
    r"|\b(?:19|20)\d\d\b|\b\d{1,3}(?:,\d{3})+\b|\b\d{4,}\b"
)
_DIGITS = re.compile(r"\d(?:[\d.,]*\d)?")
_NOT_PROSE = re.compile(
    r"```.*?```|`[^`\n]*`|<!--.*?-->|<[^>]*>|\]\([^)]*\)|^:::\w*|\$[^$\n]*\\[^$\n]*\$",
    re.DOTALL | re.MULTILINE,
)
_NOT_STATED = re.compile(  # pictures and timelines are computed, sources are sources, questions ask
    r"^:::(?:source [^\n]*$|(?:figure|timeline|source|guess)\b.*?^:::$)",
    re.DOTALL | re.MULTILINE,
)
_BLOCK_LINE = re.compile(
    r"^:::(?:bars|dots)(?:.|\n)*?^:::$|^:::[^\n]*$|\$\$?[^$\n]+\$\$?", re.MULTILINE
)


def read_all_claims() -> list[Claim]:
    """Read the claims of the slides, and those of the notebooks, which a slide may repeat."""
    file = SLIDES / "claims.toml"
    return [*(read_claims(file) if file.exists() else ()), *read_claims()]


def sources(slide: Slide, deck: str, claims: Sequence[Claim]) -> list[str]:
    """Return the sources of the claims on `slide` and in its notes, without duplicates."""
    said = _said(slide)
    matching = [c for c in claims if _own(c, deck) and _words(c.text) in said]
    return list(dict.fromkeys(claim.source for claim in matching))


def words_shown(slide: Slide) -> int:
    """Count the words on `slide` except those of code, formulas, pictures and sources."""
    text = _NOT_PROSE.sub(" ", _BLOCK_LINE.sub(" ", _NOT_STATED.sub(" ", slide.text)))
    return sum(any(letter.isalpha() for letter in word) for word in text.split())


def spoken_minutes(slide: Slide) -> float:
    """Return the minutes of `slide`: its spoken words, and the silence, votes and live demos."""
    source = f"{slide.text}\n{slide.spoken}"
    seconds = sum(n * len(re.findall(mark, source, re.MULTILINE)) for mark, n in SECONDS.items())
    return len(_words(slide.spoken).split()) / PACE + seconds / 60


def findings(deck: Deck, claims: Sequence[Claim]) -> Iterator[str]:
    """Yield a message for each number without a source, unused claim, or wrong length."""
    yield from _lengths(deck)
    said = [_said(slide) for slide in deck.slides]
    for claim in claims:
        if claim.notebook == deck.name and not any(_words(claim.text) in text for text in said):
            yield f"{deck.name}: no slide contains the text of claim {claim.id}. Fix claims.toml."
    texts = sorted((_words(c.text) for c in claims if _own(c, deck.name)), key=len, reverse=True)
    for slide in deck.slides:
        shown = set(_DIGITS.findall(slide.text))
        repeated = [  # notes may repeat a number that the slide shows
            found
            for found in _numbers_in(slide.notes, texts)
            if not shown.issuperset(_DIGITS.findall(found))
        ]
        for found in _numbers_in(_NOT_STATED.sub("", slide.text), texts) + repeated:
            yield (
                f"{slide.where}: {found!r} has no source. Add it to claims.toml, or mark its "
                f"paragraph {GIVEN}."
            )


def _lengths(deck: Deck) -> Iterator[str]:
    """Yield a message if the minutes do not add up or a slide has too many words."""
    talk = [slide for slide in deck.slides if not slide.backup]
    whole = sum(slide.minutes for slide in talk)
    short = sum(slide.minutes for slide in talk if not slide.skippable)
    for minutes, stated in {(whole, deck.minutes), (short, deck.short or deck.minutes)}:
        if minutes != stated:
            yield f"{deck.name}: the slides take {minutes:g} minutes, its head says {stated:g}."
    for slide in deck.slides:
        if (count := words_shown(slide)) > MOST_WORDS:
            yield f"{slide.where} has {count} words. Shorten it to {MOST_WORDS}."
        if (needed := spoken_minutes(slide)) > slide.minutes + 0.25:
            yield f"{slide.where} takes {needed:.1f} min aloud, its notes say {slide.minutes:g}."


def _numbers_in(text: str, texts: Sequence[str]) -> list[str]:
    """Return the numbers of each paragraph that no claim in `texts` covers."""
    return [found for one in re.split(r"\n\s*\n", text) for found in _numbers(one, texts)]


def _numbers(paragraph: str, texts: Sequence[str]) -> list[str]:
    if GIVEN in paragraph:
        return []
    prose = _words(paragraph)
    for text in texts:
        prose = prose.replace(text, " ")
    return [found.strip() for found in _NUMBER.findall(prose)]


def _own(claim: Claim, deck: str) -> bool:
    """Return whether `deck` may use `claim`: a claim of the deck or of a notebook."""
    return claim.notebook == deck or len(claim.notebook) <= 2


def _said(slide: Slide) -> str:
    return _words(f"{slide.text}\n\n{slide.notes}")


def _words(text: str) -> str:
    return " ".join(_NOT_PROSE.sub(" ", text).split())
