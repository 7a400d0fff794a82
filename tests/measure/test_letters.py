from course_utils.measure.picture import Picture
from course_utils.measure.picture.text import MARGIN, as_text
from tests.measure.handmade import naive


def lines(*traces, width=40):
    return as_text(Picture(traces), width).splitlines()


def test_each_letter_is_the_main_stage_of_its_time():
    main = next(line for line in lines(naive(steps=1)) if line.startswith("main"))
    assert main.split()[-1] == "r" * 24 + "d" * 6
    gpu = next(line for line in lines(naive(steps=1)) if line.startswith("gpu"))
    assert gpu.split()[-1] == "." * 30 + "#" * 10


def test_the_text_says_what_the_picture_says():
    written = "\n".join(lines(naive()))
    assert written.startswith("Naive: the GPU computes 25 %")
    assert "made by hand" in written
    assert "25 %" in written
    assert "r read" in written
    assert ". GPU idle" in written


def test_two_traces_share_the_axis():
    slow, fast = naive(steps=4, label="slow"), naive(steps=2, label="fast")
    rows = [line for line in lines(slow, fast) if line.startswith("gpu")]
    assert len(rows[0]) - MARGIN == 2 * (len(rows[1]) - MARGIN)
