import re
import xml.etree.ElementTree as ElementTree

from keepfed.measure.picture import LOOKS, Picture, as_svg, as_text
from keepfed.measure.picture.static import LEFT, LETTERS, MARGIN, RIGHT, WIDTH
from tests.measure.handmade import naive

SVG = "{http://www.w3.org/2000/svg}"


def drawn(picture):
    return ElementTree.fromstring(as_svg(picture))


def test_svg_has_description_and_correct_widths():
    picture = Picture([naive(steps=1, load_ms=30, step_ms=10)])
    root = drawn(picture)
    title, description = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert title.text.startswith("Naive: the GPU computes 25 %")
    assert "naive (made by hand): main busy 75 %, gpu busy 25 %." in description.text
    assert root.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"
    assert "made by hand" in [element.text for element in root.iter(f"{SVG}text")]
    patterns = {one.get("id")[8:] for one in root.iter(f"{SVG}pattern")}
    assert patterns == {*LOOKS, "idle"}
    boxes = re.findall(r"M([\d.]+) [\d.]+V[\d.]+H([\d.]+)", as_svg(picture))
    widths = {(float(right) - float(left)) / (WIDTH - LEFT - RIGHT) for left, right in boxes}
    assert {round(width, 3) for width in widths} >= {0.75, 0.25}  # idle time and step of the GPU


def test_svg_escapes_names_and_has_unique_ids():
    pages = [drawn(Picture([naive()], [name])) for name in ('<script>"&', "other")]
    assert '<script>"&' in "".join(pages[0].itertext())
    one, other = ({element.get("id") for element in page.iter()} - {None} for page in pages)
    assert not one & other


def test_text_shows_main_stage_of_each_column():
    slow = naive(steps=1, load_ms=LETTERS // 4 * 3, step_ms=LETTERS // 4)
    fast = naive(steps=1, load_ms=LETTERS // 4, step_ms=LETTERS // 4)
    lines = as_text(Picture([slow, fast])).splitlines()
    assert lines[0].startswith("Naive: the GPU computes 25 %")
    assert lines[3] == "naive · made by hand"
    rows = [line[MARGIN:].strip() for line in lines if line.startswith(("main", "gpu"))]
    assert rows[:2] == ["r" * 43 + "d" * 11, "." * 54 + "#" * 18]
    assert rows[3] == "." * 18 + "#" * 18  # on the same axis
    assert "r read" in lines[-1]
    assert ". GPU idle" in lines[-1]
