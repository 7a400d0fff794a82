"""Colors and patterns are distinct on light and dark pages, even without color vision."""

from itertools import combinations

from keepfed.measure.picture.model import ALL_LOOKS, LOOKS
from keepfed.measure.spans import STAGES
from keepfed.palette import DARK, LIGHT


def contrast(*colors: str) -> float:
    """Return the contrast ratio of two colors, 1 to 21, as WCAG 2 defines it."""
    dim, bright = sorted(map(luminance, colors))
    return (bright + 0.05) / (dim + 0.05)


def luminance(color: str) -> float:
    shares = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_outlines_and_numbers_have_enough_contrast() -> None:
    for name, look in ALL_LOOKS.items():
        assert contrast(look.edge(dark=False), LIGHT.bg) >= 3, name
        assert contrast(look.edge(dark=True), DARK.bg) >= 3, name
        assert name == "idle" or contrast(look.text, look.color) >= 4.5, name


def test_stages_differ_in_color_pattern_and_letter() -> None:
    assert tuple(LOOKS) == STAGES
    for one, other in combinations(ALL_LOOKS.values(), 2):
        assert one.color != other.color
        assert (one.tile, one.opacity) != (other.tile, other.opacity)
        assert one.letter != other.letter
    assert min(contrast(colors.idle, colors.bg) for colors in (LIGHT, DARK)) >= 3
