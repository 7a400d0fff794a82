"""Find what a slide states in figures, and where that comes from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from notebooks.claims import Claim, read_claims
from slides.build.markdown import Deck, Slide
from slides.build.rich_text import SLIDES

GIVEN = "<!-- given -->"
_NUMBER = re.compile(
    r"(?<![\w.])\d[\d.,]*(?:\s*(?:to|and|-|\u2013)\s*\d[\d.,]*)?\s?"
    r"(?:%|\u00d7|x\b|times\b|[mµun]?s\b|minutes?\b|seconds?\b|hours?\b|days?\b|years?\b"
    r"|[kKMGTPE]i?B\b|bytes\b|W\b|[a-z]+/s\b|€|\$|euros?\b|dollars?\b"
    r"|thousand\b|[mb]illions?\b|trillions?\b)"
    r"|(?<![\w.])[€$]\s?\d[\d.,]*"
    r"|\b(?:19|20)\d\d\b|\b\d{1,3}(?:,\d{3})+\b|\b\d{4,}\b"
)
_NOT_PROSE = re.compile(
    r"```.*?```|`[^`\n]*`|<!--.*?-->|<[^>]*>|\]\([^)]*\)|^:::\w*|\$[^$\n]*\\[^$\n]*\$",
    re.DOTALL | re.MULTILINE,
)
_NOT_STATED = re.compile(  # what a picture draws, and a source line, which is the source itself
    r"^:::(?:source [^\n]*$|(?:figure|timeline|source)\b.*?^:::$)",
    re.DOTALL | re.MULTILINE,
)


def read_all_claims() -> list[Claim]:
    """Return the claims of the slides, and those of the notebooks, which a slide may repeat."""
    file = SLIDES / "claims.toml"
    return [*(read_claims(file) if file.exists() else ()), *read_claims()]


def sources(slide: Slide, deck: str, claims: Sequence[Claim]) -> list[str]:
    """Return where the statements of `slide` come from, each source once."""
    said = _words(slide.text)
    matching = [c for c in claims if _own(c, deck) and _words(c.text) in said]
    return list(dict.fromkeys(claim.source for claim in matching))


def findings(deck: Deck, claims: Sequence[Claim]) -> Iterator[str]:
    """Yield a sentence for each number without a source, claim without a slide, lost minute."""
    minutes = sum(slide.minutes for slide in deck.slides)
    if minutes != deck.minutes:
        yield f"{deck.name}: the slides take {minutes:g} minutes, its head says {deck.minutes:g}."
    said = [_words(slide.text) for slide in deck.slides]
    for claim in claims:
        if claim.notebook == deck.name and not any(_words(claim.text) in text for text in said):
            yield f"{deck.name}: claim {claim.id} is on no slide word for word: mend claims.toml."
    texts = sorted((_words(c.text) for c in claims if _own(c, deck.name)), key=len, reverse=True)
    for number, slide in enumerate(deck.slides, 1):
        for paragraph in re.split(r"\n\s*\n", _NOT_STATED.sub("", slide.text)):
            for found in _numbers(paragraph, texts):
                yield (
                    f"{deck.name}, slide {number} ({slide.heading}): {found!r} has no source: add "
                    f"it to claims.toml, or mark its paragraph {GIVEN}."
                )


def _numbers(paragraph: str, texts: Sequence[str]) -> list[str]:
    if GIVEN in paragraph:
        return []
    prose = _words(paragraph)
    for text in texts:
        prose = prose.replace(text, " ")
    return [found.strip() for found in _NUMBER.findall(prose)]


def _own(claim: Claim, deck: str) -> bool:
    """Tell whether `deck` may rely on `claim`: its own, or one of a notebook."""
    return claim.notebook == deck or len(claim.notebook) <= 2


def _words(text: str) -> str:
    return " ".join(_NOT_PROSE.sub(" ", text).split())
