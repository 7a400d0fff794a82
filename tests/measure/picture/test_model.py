import gzip
import itertools
import json

import pytest

from course_utils.measure.picture import LOOKS, Control, Picture, facts, key, states
from course_utils.measure.picture.model import (
    DARK,
    IDLE,
    IDLE_DARK,
    LIGHT,
    columns,
    pack,
    sentence,
    tick_ns,
)
from course_utils.measure.simulate import Pipeline, simulate
from course_utils.measure.spans import STAGES
from tests.measure.handmade import MS, naive, span, trace_of

CONTROLS = [
    Control("strategy", "Strategy", ["naive", "workers"]),
    Control("load", "Load time", [40, 80]),
]
EVERY = {**LOOKS, "idle": IDLE}


def contrast(colour, other):
    """Return the contrast ratio of two colours, 1 to 21, as WCAG 2 defines it."""
    bright, dim = sorted((luminance(colour), luminance(other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def luminance(colour):
    shares = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_stages_stand_out_from_both_backgrounds_and_from_each_other():
    assert tuple(LOOKS) == STAGES
    assert min(contrast(IDLE.colour, LIGHT), contrast(IDLE_DARK, DARK)) >= 3
    for name, look in EVERY.items():
        assert contrast(look.edge(dark=False), LIGHT) >= 3, name
        assert contrast(look.edge(dark=True), DARK) >= 3, name
        assert name == "idle" or contrast(look.text, look.colour) >= 4.5, name
    for one, other in itertools.combinations(EVERY.values(), 2):
        assert one.colour != other.colour
        assert (one.tile, one.opacity) != (other.tile, other.opacity)
        assert one.letter != other.letter


def test_states_are_all_combinations_of_the_options_named_in_their_order():
    every = [key(CONTROLS, state) for state in states(CONTROLS)]
    assert every[:2] == ["strategy=naive|load=40", "strategy=naive|load=80"]
    assert len(every) == len(set(every)) == 4
    assert list(states([])) == [{}]
    assert key([], {}) == ""


@pytest.mark.parametrize(
    ("trace", "says"),
    [
        (
            naive(steps=5),
            "The GPU computes 25 % of the time and waits 75 %, mostly for read; 15 % is start-up.",
        ),
        (
            trace_of(span("gpu", "compute", 0, 10)),
            "The GPU computes 100 % of the time and waits 0 %.",
        ),
        (
            trace_of(span("main", "wait", 0, 5, 0), span("gpu", "compute", 5, 10, 0)),
            "The GPU computes 50 % of the time and waits 50 %, nearly all of it start-up.",
        ),
        (
            trace_of(span("main", "read", 0, 5)),
            "The GPU computed nothing: call gpu.step(batch) in the loop.",
        ),
    ],
    ids=["busy, idle, reason", "no reason needed", "start-up", "no step"],
)
def test_the_sentence_says_busy_idle_and_reason_with_a_name_if_there_is_one(trace, says):
    assert sentence(trace) == says
    assert sentence(trace, "naive loop") == f"Naive loop: t{says[1:]}"


def test_facts_count_gaps_and_the_longest_but_not_the_launch_of_the_next_step():
    assert facts(naive(steps=2))["GPU idle"] == "2 gaps, longest 30 ms"
    launch = trace_of(span("gpu", "compute", 0, 10), span("gpu", "compute", 10.05, 20))
    assert facts(launch)["GPU idle"] == "0 gaps"


def test_a_picture_describes_its_trace_and_compares_several():
    picture = Picture([naive(label="mine")])
    assert picture.names == ("mine",)
    assert picture.sentence.startswith("Mine: the GPU computes 25 %")
    assert picture.facts["GPU busy"] == "25 %"
    both = Picture([naive(), naive(step_ms=30)], ["predicted", "measured"])
    assert both.facts == {"predicted: GPU busy": "25 %", "measured: GPU busy": "50 %"}
    assert len(both.sentence.splitlines()) == 2


def test_columns_begin_at_the_first_span_and_say_where_nested_spans_go():
    trace = trace_of(
        span("gpu", "compute", 5_100, 5_110, 0),
        span("gpu", "compute", 5_110, 5_120, 1),
        span("gpu", "compute", 5_125, 5_127, 2),
    )
    assert columns(trace, 1_000)["lanes"] == [
        {
            "name": "gpu",
            "gap": [0, 0, 5_000],
            "length": [10_000, 10_000, 2_000],
            "batch": [0, 1, 1],
            "stage": "555",
        }
    ]
    main, _ = columns(naive(steps=1), 1_000)["lanes"]
    assert (main["row"], main["depth"], main["under"]) == ([0, 0, 0], [0, 1, 1], [-1, 6, 6])


def test_rounding_to_ticks_does_not_add_up():
    third = 1 / 3
    spans = [span("gpu", "compute", i * third, (i + 1) * third, i) for i in range(3_000)]
    data = columns(trace_of(*spans), 100_000)
    lane = data["lanes"][0]
    assert sum(lane["gap"]) + sum(lane["length"]) == pytest.approx(1_000 / data["tick"], abs=1)


@pytest.mark.parametrize(("length_ms", "tick_us"), [(1, 1), (10, 1), (11, 2), (40, 5), (90, 10)])
def test_ticks_are_round_and_as_short_as_the_resolution_allows(length_ms, tick_us):
    trace = trace_of(span("gpu", "compute", 0, length_ms))
    assert tick_ns(trace, 10_000) == tick_us * 1_000
    assert columns(trace, tick_us * 1_000)["tick"] == tick_us * 1_000 / MS


def test_a_trace_shown_in_two_pictures_is_packed_once_and_the_same_way_each_time():
    one, other = naive(), naive(step_ms=20)
    pictures = {"a": Picture([one]), "b": Picture([one, other])}
    packed = pack(CONTROLS, pictures, 10_000)
    data = json.loads(gzip.decompress(packed))
    assert len(data["traces"]) == 2
    assert [picture["traces"] for picture in data["pictures"].values()] == [[0], [0, 1]]
    assert pack(CONTROLS, pictures, 10_000) == packed


def test_216_states_of_40_batches_fit_in_63_kb():
    pictures = {}
    for load, step, workers in itertools.product(
        range(10, 130, 10), (20, 50, 100), (0, 1, 2, 4, 6, 8)
    ):
        parts = {"read_ms": load * 0.6, "decode_ms": load * 0.3, "collate_ms": load * 0.1}
        run = Pipeline(**parts, copy_ms=5, step_ms=step, num_workers=workers, jitter=0.3)
        pictures[f"load={load}|step={step}|workers={workers}"] = Picture([simulate(run)])
    assert len(pictures) == 216
    assert len(pack([], pictures, 10_000)) < 63_000
