"""The picture of the README can be read on a phone, and its motion ends."""

import re

from course_utils.paths import REPO
from docs import draw_timeline

SVG = (REPO / "docs/timeline.svg").read_text("utf-8")
WIDTH, PHONE = 960, 390 - 2 * 16  # units of the picture, and pixels of a phone


def test_text_for_phones_has_at_least_12_pixels() -> None:
    size = re.search(r"\.narrow\{[^}]*font-size:(\d+)px", SVG)
    assert size
    assert int(size[1]) * PHONE / WIDTH >= 12
    assert "max-width:600px" in SVG


def test_motion_starts_with_the_complete_picture_and_plays_once() -> None:
    assert "animation:pass 12s linear both" in SVG
    first = re.search(r"@keyframes pass\{0%,16%[^{]*\{transform:translateX\((\d+)px\)", SVG)
    assert first
    assert int(first[1]) >= WIDTH


def test_picture_of_readme_is_up_to_date(tmp_path):
    drawing = tmp_path / "timeline.svg"
    assert draw_timeline.main([str(drawing)]) == 0
    assert drawing.read_text("utf-8") == SVG
