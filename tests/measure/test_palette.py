import itertools

import pytest

from course_utils.measure.picture import LOOKS
from course_utils.measure.picture.palette import DARK, IDLE, IDLE_DARK, LIGHT, contrast, mix
from course_utils.measure.spans import STAGES

EVERY = {**LOOKS, "idle": IDLE}


def test_every_stage_has_a_look():
    assert tuple(LOOKS) == STAGES


def test_idle_is_seen_on_both_backgrounds():
    assert contrast(IDLE.colour, LIGHT) >= 3
    assert contrast(IDLE_DARK, DARK) >= 3


def test_black_on_white_has_the_greatest_contrast():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#123456", "#123456") == pytest.approx(1)


def test_mixing_goes_from_one_colour_to_the_other():
    assert mix("#102030", "#ffffff", 0) == "#102030"
    assert mix("#102030", "#ffffff", 1) == "#ffffff"
    assert mix("#000000", "#ffffff", 0.5) == "#808080"


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize(("dark", "background"), [(False, LIGHT), (True, DARK)])
def test_outlines_stand_out_from_the_background(name, dark, background):
    assert contrast(EVERY[name].edge(dark), background) >= 3


@pytest.mark.parametrize("name", LOOKS)
def test_batch_numbers_can_be_read_on_their_stage(name):
    assert contrast(LOOKS[name].text, LOOKS[name].colour) >= 4.5


def test_no_two_stages_share_colour_or_pattern():
    for one, other in itertools.combinations(EVERY.values(), 2):
        assert one.colour != other.colour
        assert (one.tile, one.hatch, one.opacity) != (other.tile, other.hatch, other.opacity)
        assert one.letter != other.letter
