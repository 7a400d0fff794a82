from course_utils.paths import REPO
from docs import draw_timeline

SVG = (REPO / "docs/timeline.svg").read_text("utf-8")


def test_picture_of_readme_is_up_to_date(tmp_path):
    drawing = tmp_path / "timeline.svg"
    assert draw_timeline.main([str(drawing)]) == 0
    assert drawing.read_text("utf-8") == SVG
