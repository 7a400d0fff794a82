import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest

from course_utils.measure.picture import LOOKS, Picture
from course_utils.measure.picture import svg as fallback
from course_utils.measure.simulate import Pipeline, simulate
from course_utils.paths import REPO
from tests.measure.handmade import naive, span, trace_of

SVG = "{http://www.w3.org/2000/svg}"


def drawn(picture):
    return ElementTree.fromstring(fallback.as_svg(picture))


def test_title_and_description_say_what_is_drawn():
    root = drawn(Picture([naive()]))
    title, description = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert title.text.startswith("Naive: the GPU computes 25 %")
    assert "naive (made by hand): main busy 75 %, gpu busy 25 %." in description.text
    assert root.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"


def test_the_note_stands_on_the_picture():
    texts = [element.text for element in drawn(Picture([naive()])).iter(f"{SVG}text")]
    assert "made by hand" in texts


def test_every_stage_has_colour_and_pattern():
    root = drawn(Picture([naive()]))
    patterns = {pattern.get("id")[8:]: pattern for pattern in root.iter(f"{SVG}pattern")}
    assert patterns.keys() == {*LOOKS, "idle"}
    fills = {name: pattern[0].get("fill") for name, pattern in patterns.items()}
    assert fills["compute"] == LOOKS["compute"].colour


def test_steps_and_gaps_have_the_width_of_their_time():
    svg = fallback.as_svg(Picture([naive(steps=1, load_ms=30, step_ms=10)]))
    width = fallback.WIDTH - fallback.LEFT - fallback.RIGHT
    assert f"h{width * 0.75:.1f}v" in svg
    assert f"h{width * 0.25:.1f}v" in svg


def test_names_from_outside_cannot_break_the_picture():
    root = drawn(Picture([naive()], ['<script>"&']))
    assert '<script>"&' in "".join(root.itertext())


def test_two_pictures_on_a_page_do_not_share_ids():
    ids = [
        {element.get("id") for element in drawn(Picture([naive()], [name])).iter()} - {None}
        for name in ("one", "other")
    ]
    assert not ids[0] & ids[1]


def test_a_long_run_stays_small_and_shows_shares():
    trace = simulate(Pipeline(read_ms=7, step_ms=4, num_workers=6, steps=2_000, jitter=0.5))
    assert len(fallback.as_svg(Picture([trace]))) < 80_000


def test_a_trace_without_steps_can_be_drawn():
    drawn(Picture([trace_of(span("main", "read", 0, 5))]))
    drawn(Picture([trace_of()]))


@pytest.mark.filterwarnings("error")
def test_the_picture_of_the_readme_is_made_by_one_command(tmp_path):
    draw = [sys.executable, REPO / "docs/draw_timeline.py", tmp_path / "timeline.svg"]
    subprocess.run(draw, cwd=REPO, env=os.environ | {"PYTHONPATH": str(REPO)}, check=True)
    root = ElementTree.parse(tmp_path / "timeline.svg").getroot()
    assert root.tag == f"{SVG}svg"
