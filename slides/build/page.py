"""Write a deck as one HTML file that needs no network."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from html import escape
from pathlib import Path

from course_utils.plots import TYPEFACE
from keepfed.measure.picture import module_source
from notebooks.claims import Claim
from slides.build.markdown import Deck, Slide, to_html
from slides.build.rich_text import render
from slides.build.sources import sources

PART = re.compile(r"<!-- part: (\w+): (.*?) -->")  # color and name from this slide on
HERE = Path(__file__).resolve().parent
_WOFF2 = re.compile(r'url\("([\w-]+\.woff2)"\)')
REVEAL = HERE / "vendor" / "reveal"


def page(deck: Deck, claims: Sequence[Claim]) -> str:
    """Return the page of `deck`. The speaker notes end with the sources of the slide."""
    sheets = TYPEFACE / "inter.css", REVEAL / "reset.css", REVEAL / "reveal.css", HERE / "theme.css"
    styles = "".join(f"<style>{sheet.read_text('utf-8')}</style>" for sheet in sheets)
    styles = _WOFF2.sub(lambda found: _embedded(TYPEFACE / found[1]), styles)
    scripts = "".join(
        f"<script>{_inline((REVEAL / name).read_text('utf-8'))}</script>"
        for name in ("reveal.js", "notes.js")
    )
    deck_js = (HERE / "deck.js").read_text("utf-8")
    start = _inline(f"{module_source()}\n{{\n{deck_js}}}")  # a scope for its names
    part, sections = "", ""
    for number, slide in enumerate(deck.slides, 1):
        if begins := PART.search(slide.text):
            part = f' {begins[1]}" data-part="{escape(begins[2])}'
        sections += _section(deck, number, slide, claims, part)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(deck.title)}</title>"
        '<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">'
        f'{styles}</head>\n<body><div class="reveal" data-minutes="{deck.minutes:g}">'
        f'<div class="slides">\n{sections}\n</div></div>'
        f'{scripts}<script type="module">{start}</script></body></html>\n'
    )


def _section(deck: Deck, number: int, slide: Slide, claims: Sequence[Claim], part: str) -> str:
    shown = to_html(slide, deck.name)
    if number == 1:
        shown = shown.replace(escape(slide.heading), escape(deck.title), 1)
        below = filter(None, (deck.subtitle, deck.by))
        shown += "".join(f'<p class="subtitle">{escape(line)}</p>' for line in below)
    listed = "".join(f"<li>{escape(source)}</li>" for source in sources(slide, deck.name, claims))
    notes = render(slide.notes) + (f"<p>Sources:</p><ul>{listed}</ul>" if listed else "")
    kind = f"slide{' title' * (number == 1)}{part}"
    return (
        f'<section data-minutes="{slide.minutes:g}"{" data-skip" * slide.skippable}'
        f"{' data-backup' * slide.backup}>"
        f'<div class="{kind}">{shown}</div>'
        f'<aside class="notes">{notes}</aside></section>\n'
    )


def _embedded(font: Path) -> str:
    return f'url("data:font/woff2;base64,{b64encode(font.read_bytes()).decode()}")'


def _inline(script: str) -> str:
    return script.replace("</script", "<\\/script")
