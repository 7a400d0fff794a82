"""Give every stage one colour and one pattern, in all pictures of the course.

The colours are those of Okabe and Ito, which colour-blind people can tell apart; the patterns keep
the stages apart in grey print. Browser, SVG and text all draw from this one table.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

LIGHT, DARK = "#ffffff", "#15181c"  # the two backgrounds
TILE = 8  # width and height of a pattern tile in pixels


@dataclass(frozen=True)
class Look:
    """How one stage is drawn."""

    colour: str
    ink: str  # the lines of the pattern
    text: str  # a batch number written on it
    tile: str  # the pattern's lines as an SVG path on a tile
    letter: str  # the stage in a timeline made of text
    opacity: float = 1.0

    @property
    def dots(self) -> bool:
        """Whether its pattern is made of dots: lines of no length, drawn thick with round ends."""
        return self.tile == _DOTS

    def edge(self, dark: bool) -> str:
        """Return an outline that stands out from the background by 3:1 or more."""
        return mix(self.colour, "#ffffff", 0.25) if dark else mix(self.colour, "#000000", 0.45)


def mix(colour: str, other: str, share: float) -> str:
    """Return `colour` with a `share` (0 to 1) of `other` stirred in."""
    pairs = zip(_rgb(colour), _rgb(other), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


_DOTS = "M2 2h0M6 6h0"
_SLASH = "M-2 2L2 -2M-1 9L9 -1M6 10L10 6"
_BACKSLASH = "M-2 6L2 10M-1 -1L9 9M6 -2L10 2"
_CROSS = f"{_SLASH}{_BACKSLASH}"
_RUNGS = "M0 2H8M0 6H8"
_POSTS = "M2 0V8M6 0V8"

LOOKS = {
    "read": Look("#0072b2", "#8fc7e8", "#ffffff", _DOTS, "r"),
    "decode": Look("#56b4e9", "#1c6f9e", "#000000", _SLASH, "d"),
    "transform": Look("#f0e442", "#a19712", "#000000", _CROSS, "t"),
    "collate": Look("#009e73", "#00553d", "#000000", _RUNGS, "c"),
    "transfer": Look("#cc79a7", "#7d3a5e", "#000000", _POSTS, ">"),
    "compute": Look("#e69f00", "#e69f00", "#000000", "", "#"),
    "wait": Look("#999999", "#999999", "#000000", "", "~", opacity=0.28),
}

IDLE = Look("#c8102e", "#c8102e", "#000000", _BACKSLASH, ".", opacity=0.1)
IDLE_DARK = "#ff8a8a"  # the same red on a dark background


def table() -> dict[str, dict[str, object]]:
    """Return the looks of all stages and of `idle` as plain data, outlines included."""
    return {
        name: {
            **asdict(look),
            "dots": look.dots,
            "edges": [look.edge(dark=False), look.edge(dark=True)],
        }
        for name, look in {**LOOKS, "idle": IDLE}.items()
    }
