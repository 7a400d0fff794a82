"""Colors of all pictures and pages, by meaning.

The hues are the palette of Okabe and Ito, which is safe for color-blind readers. Pictures add
patterns, markers or labels, because gray print has no hues. Other files use these names. Files in
CSS, JavaScript and HTML, which cannot import them, repeat these values, and a test compares them.
"""

from __future__ import annotations

from typing import NamedTuple

BLUE, SKY, GREEN, YELLOW = "#0072b2", "#56b4e9", "#009e73", "#f0e442"
ORANGE, VERMILION, PINK, GRAY = "#e69f00", "#d55e00", "#cc79a7", "#808080"
WHITE, BLACK = "#ffffff", "#000000"

# stages of a timeline, which always has a legend
READ, DECODE, TRANSFORM, COLLATE = BLUE, SKY, YELLOW, GREEN
TRANSFER, COMPUTE, WAIT, IDLE = PINK, ORANGE, "#999999", "#c8102e"

# all other pictures; each color has a contrast of at least 3:1 to the paper of both pages
GOOD, BAD, NEUTRAL = GREEN, VERMILION, GRAY
MEASURED, GUESSED = BLUE, GRAY
TRACK = f"{GRAY}33"  # empty rest of a bar, transparent
SERIES = (BLUE, VERMILION, GREEN, PINK, ORANGE, SKY)  # `axes.prop_cycle` of the plot styles

# darker and lighter shades for patterns
INKS = {
    READ: "#8fc7e8",
    DECODE: "#1c6f9e",
    TRANSFORM: "#a19712",
    COLLATE: "#00553d",
    TRANSFER: "#7d3a5e",
}
SLIDE_TEXT = "#0a0b0c"  # placeholder in a figure for the text color of its slide
# shades for text in color, on a light page and on a dark page, with a contrast of at least 4.5:1
TEXT = {
    BLUE: ("#00598c", "#7cc5ee"),
    GREEN: ("#00553d", "#5fd0a8"),
    ORANGE: ("#7a3e00", "#f2b134"),
    VERMILION: ("#a4330a", "#ffb38a"),
    PINK: ("#7d3a5e", "#e0a3c6"),
}


class _Page(NamedTuple):
    """Colors of a page, named as the CSS variables."""

    fg: str
    soft: str  # secondary text
    bg: str
    line: str  # borders
    grid: str  # lines behind a picture
    track: str  # background of rows and code
    idle: str
    accent: str

    def css(self) -> str:
        """Return the colors as declarations of CSS variables."""
        return ";".join(f"--{name}:{value}" for name, value in self._asdict().items())


LIGHT = _Page("#1b1f24", "#5b6570", WHITE, "#c9ced5", "#dfe3e8", "#f3f5f7", IDLE, BLUE)
DARK = _Page("#f2f4f7", "#a8b0ba", "#15181c", "#4a525c", "#363c44", "#20252b", "#ff8a8a", SKY)
