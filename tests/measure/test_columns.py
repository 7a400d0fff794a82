import gzip
import json

import pytest

from course_utils.measure.picture import Control, Picture, key, states
from course_utils.measure.picture.model import columns, pack, tick_ns
from course_utils.measure.simulate import Pipeline, simulate
from tests.measure.handmade import MS, naive, span, trace_of

STRATEGY = Control("strategy", "Strategy", ["naive", "workers"])


def unpacked(packed):
    return json.loads(gzip.decompress(packed))


def test_a_state_is_named_in_the_order_of_the_controls():
    controls = [STRATEGY, Control("load", "Load time", [40, 80])]
    assert key(controls, {"load": 80, "strategy": "naive"}) == "strategy=naive|load=80"
    assert key([], {}) == ""


def test_states_are_all_combinations_of_the_options():
    controls = [STRATEGY, Control("load", "Load time", [40, 80])]
    every = [key(controls, state) for state in states(controls)]
    assert every[:2] == ["strategy=naive|load=40", "strategy=naive|load=80"]
    assert len(every) == len(set(every)) == 4
    assert list(states([])) == [{}]


def test_starts_are_distances_from_the_span_before():
    trace = trace_of(
        span("gpu", "compute", 100, 110, 0),
        span("gpu", "compute", 110, 120, 1),
        span("gpu", "compute", 125, 127, 2),
    )
    lane = columns(trace, 1_000)["lanes"][0]
    assert lane["gap"] == [0, 0, 5_000]
    assert lane["length"] == [10_000, 10_000, 2_000]
    assert lane["batch"] == [0, 1, 1]
    assert lane["stage"] == "555"


def test_only_lanes_with_overlap_say_where_their_spans_go():
    main, gpu = columns(naive(steps=1), 1_000)["lanes"]
    assert main["depth"] == [0, 1, 1]
    assert main["under"] == [-1, 6, 6]
    assert "depth" not in gpu


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


def test_packing_twice_gives_the_same_bytes():
    pictures = {"strategy=naive": Picture([naive()]), "strategy=workers": Picture([naive()])}
    assert pack([STRATEGY], pictures) == pack([STRATEGY], pictures)


def test_a_trace_shown_in_two_pictures_is_packed_once():
    one, other = naive(), naive(step_ms=20)
    pictures = {"a": Picture([one]), "b": Picture([one, other])}
    data = unpacked(pack([], pictures))
    assert len(data["traces"]) == 2
    assert [picture["traces"] for picture in data["pictures"].values()] == [[0], [0, 1]]


def test_a_picture_names_and_describes_itself():
    picture = Picture([naive(label="mine")])
    assert picture.names == ("mine",)
    assert picture.sentence.startswith("Mine: the GPU computes 25 %")
    assert picture.facts["GPU busy"] == "25 %"


def test_a_picture_of_two_traces_compares_them():
    picture = Picture([naive(), naive(step_ms=30)], ["predicted", "measured"])
    assert picture.facts == {"predicted: GPU busy": "25 %", "measured: GPU busy": "50 %"}
    assert len(picture.sentence.splitlines()) == 2


def test_216_states_of_40_batches_fit_in_63_kb():
    pictures = {}
    for load in range(10, 130, 10):
        for step in (20, 50, 100):
            for workers in (0, 1, 2, 4, 6, 8):
                pipeline = Pipeline(
                    read_ms=load * 0.6,
                    decode_ms=load * 0.3,
                    collate_ms=load * 0.1,
                    copy_ms=5,
                    step_ms=step,
                    num_workers=workers,
                    jitter=0.3,
                )
                pictures[f"load={load}|step={step}|workers={workers}"] = Picture(
                    [simulate(pipeline)]
                )
    assert len(pictures) == 216
    assert len(pack([], pictures)) < 63_000


def test_times_begin_at_the_first_span():
    trace = trace_of(span("gpu", "compute", 5_000, 5_010, 0))
    data = unpacked(pack([], {"": Picture([trace])}))
    assert data["traces"][0]["lanes"][0]["gap"] == [0]
    assert data["traces"][0]["tick"] * data["traces"][0]["lanes"][0]["length"][0] == 10 * MS / 1e6
