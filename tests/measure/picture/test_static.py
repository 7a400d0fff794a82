import xml.etree.ElementTree as ElementTree

import pytest

from course_utils.measure.picture import LOOKS, Picture, as_svg, as_text
from course_utils.measure.picture.static import LEFT, LETTERS, MARGIN, RIGHT, WIDTH
from course_utils.measure.simulate import Pipeline, simulate
from course_utils.paths import REPO
from docs import draw_timeline
from tests.measure.handmade import naive, span, trace_of

SVG = "{http://www.w3.org/2000/svg}"


def drawn(picture):
    return ElementTree.fromstring(as_svg(picture))


def test_title_description_and_note_say_what_is_drawn():
    root = drawn(Picture([naive()]))
    title, description = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert title.text.startswith("Naive: the GPU computes 25 %")
    assert "naive (made by hand): main busy 75 %, gpu busy 25 %." in description.text
    assert root.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"
    assert "made by hand" in [element.text for element in root.iter(f"{SVG}text")]


def test_stages_have_colour_and_pattern_and_the_width_of_their_time():
    svg = as_svg(Picture([naive(steps=1, load_ms=30, step_ms=10)]))
    patterns = {one.get("id")[8:]: one for one in ElementTree.fromstring(svg).iter(f"{SVG}pattern")}
    assert patterns.keys() == {*LOOKS, "idle"}
    assert patterns["compute"][0].get("fill") == LOOKS["compute"].colour
    for share in (0.75, 0.25):
        assert f"h{(WIDTH - LEFT - RIGHT) * share:.1f}v" in svg


def test_names_from_outside_cannot_break_the_picture_and_pictures_do_not_share_ids():
    pages = [drawn(Picture([naive()], [name])) for name in ('<script>"&', "other")]
    assert '<script>"&' in "".join(pages[0].itertext())
    one, other = ({element.get("id") for element in page.iter()} - {None} for page in pages)
    assert not one & other


def test_a_long_run_stays_small_and_shows_shares():
    trace = simulate(Pipeline(read_ms=7, step_ms=4, num_workers=6, steps=2_000, jitter=0.5))
    assert len(as_svg(Picture([trace]))) < 80_000


@pytest.mark.parametrize("trace", [trace_of(span("main", "read", 0, 5)), trace_of()])
def test_a_trace_without_steps_can_be_drawn(trace):
    drawn(Picture([trace]))


def test_the_picture_of_the_readme_is_what_its_script_draws(tmp_path):
    drawing = tmp_path / "timeline.svg"
    assert draw_timeline.main([str(drawing)]) == 0
    assert drawing.read_text("utf-8") == (REPO / "docs/timeline.svg").read_text("utf-8")


def lines(*traces):
    return as_text(Picture(traces)).splitlines()


def test_the_text_says_what_the_picture_says_and_each_letter_the_main_stage_of_its_time():
    found = lines(naive(steps=1, load_ms=LETTERS // 4 * 3, step_ms=LETTERS // 4))
    assert found[0].startswith("Naive: the GPU computes 25 %")
    assert found[2] == "naive · made by hand"
    rows = {line.split()[0]: line.split()[-1] for line in found[1:] if line}
    assert rows["main"] == "r" * 43 + "d" * 11
    assert rows["gpu"] == "." * 54 + "#" * 18
    assert "r read" in found[-1]
    assert ". GPU idle" in found[-1]


def test_two_traces_share_the_axis():
    slow, fast = naive(steps=4, label="slow"), naive(steps=2, label="fast")
    rows = [line for line in lines(slow, fast) if line.startswith("gpu")]
    assert len(rows[0]) - MARGIN == 2 * (len(rows[1]) - MARGIN)
