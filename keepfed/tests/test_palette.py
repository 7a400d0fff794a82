from keepfed import palette
from keepfed.palette import DARK, LIGHT
from tests.measure.picture.test_looks import contrast


def test_colors_are_visible_on_both_pages() -> None:
    for page in (LIGHT, DARK):
        for name in ("GOOD", "BAD", "NEUTRAL", "MEASURED", "GUESSED"):
            assert contrast(getattr(palette, name), page.bg) >= 3, name
        for shades in palette.TEXT.values():
            assert contrast(shades[page is DARK], page.track) >= 4.5
        for name in ("fg", "soft"):
            assert contrast(getattr(page, name), page.track) >= 4.5, name
