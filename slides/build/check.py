"""Measure every slide of a built deck in Chromium: overflow, small letters, low contrast."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import BrowserContext

from slides.build.browser import open_deck

_MEASURE = Path(__file__).with_name("measure.js").read_text("utf-8")


def measured(context: BrowserContext, file: Path) -> Iterator[str]:
    """Yield a message for each fault of a slide, in both themes, and for each request."""
    themes: dict[tuple[int, str], dict[str, None]] = {}
    for theme in "light", "dark":
        page, asked = open_deck(context, file, f"?theme={theme}")
        for number in range(page.evaluate("Reveal.getTotalSlides()")):
            for step in -1, 99:  # a question covers its slide at first
                page.evaluate(f"Reveal.slide({number}, 0, {step})")
                for fault in page.evaluate(_MEASURE):
                    themes.setdefault((number + 1, fault), {})[theme] = None
        yield from (f"{file.name} requests {one}, which is outside of the file" for one in asked)
        page.close()
    for (number, fault), seen in sorted(themes.items()):
        yield f"{file.stem}, slide {number}, {' and '.join(seen)}: {fault}."
