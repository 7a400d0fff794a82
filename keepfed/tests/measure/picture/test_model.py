import gzip
import json

import pytest

from keepfed.measure.picture import Control, Picture, facts
from keepfed.measure.picture.model import columns, pack, sentence
from keepfed.measure.picture.static import as_svg, as_text
from keepfed.measure.spans import MARK
from tests.measure.handmade import naive, span, trace_of

CONTROLS = [Control("run", "Run", ["naive", "workers"]), Control("load", "Load time", [40, 80])]


def test_sentence_gives_busy_and_idle_shares_with_reason():
    for spans, says in (
        (
            naive(steps=5).spans,
            "computes 25 % of the time and waits 75 %, mostly for read. Start-up takes 15 %.",
        ),
        ([span("gpu", "compute", 0, 10)], "computes 100 % of the time and waits 0 %."),
        (
            [span("main", "wait", 0, 5, 0), span("gpu", "compute", 5, 10, 0)],
            "computes 50 % of the time and waits 50 %, nearly all of it during start-up.",
        ),
        (
            [
                *(span("main", "wait", 0, 3, 0), span("gpu", "compute", 3, 10, 0)),
                *(span("main", "wait", 10, 12, 1), span("gpu", "compute", 12, 20, 1)),
            ],
            "computes 75 % of the time and waits 25 %, most of it during start-up (15 %).",
        ),
        ([span("main", "read", 0, 5)], f"computed nothing. {MARK}"),
    ):
        assert sentence(trace_of(*spans)) == f"The GPU {says}", spans
        assert sentence(trace_of(*spans), "naive loop") == f"Naive loop: the GPU {says}", spans


def test_picture_describes_one_trace_or_compares_several():
    picture = Picture([naive(steps=2, label="mine")])
    assert picture.names == ("mine",)
    assert picture.sentence.startswith("Mine: the GPU computes 25 %")
    assert picture.facts["GPU idle"] == "2 gaps, longest 30 ms"
    launch = trace_of(span("gpu", "compute", 0, 10), span("gpu", "compute", 10.05, 20))
    assert facts(launch)["GPU idle"] == "0 gaps"
    both = Picture([naive(), naive(step_ms=30)], ["predicted", "measured"])
    assert both.facts == {"predicted: GPU busy": "25 %", "measured: GPU busy": "50 %"}
    assert len(both.sentence.splitlines()) == 2
    loop = trace_of(span("main", "wait", 0, 30), span("main", "compute", 30, 40))
    plain = Picture([loop], ["cpu"])
    assert plain.sentence.startswith("Cpu: the main process computes 25 %")
    assert list(plain.facts)[:2] == ["Busy", "Idle"]
    assert "GPU" not in as_text(plain) + as_svg(plain)


def test_columns_are_relative_and_do_not_drift():
    times = [(5_100, 5_110), (5_110, 5_120), (5_125, 5_127)]
    trace = trace_of(*(span("gpu", "compute", *time, n) for n, time in enumerate(times)))
    (lane,) = columns(trace, 1_000)["lanes"]
    assert lane.pop("name") == "gpu"
    assert lane.pop("gap") == [0, 0, 5_000]
    assert lane.pop("length") == [10_000, 10_000, 2_000]
    assert lane == {"batch": [0, 1, 1], "stage": "555"}
    main, _ = columns(naive(steps=1), 1_000)["lanes"]
    assert (main["row"], main["depth"], main["under"]) == ([0, 0, 0], [0, 1, 1], [-1, 6, 6])
    thirds = [span("gpu", "compute", n / 3, (n + 1) / 3, n) for n in range(3_000)]
    (lane,) = columns(trace_of(*thirds), 100_000)["lanes"]
    assert sum(lane["gap"]) + sum(lane["length"]) == pytest.approx(10_000, abs=1)


def test_shared_trace_is_packed_once():
    one, other = naive(), naive(step_ms=20)
    pictures = {"a": Picture([one]), "b": Picture([one, other])}
    packed = pack(CONTROLS, pictures, 10_000)
    data = json.loads(gzip.decompress(packed))
    assert len(data["traces"]) == 2
    assert [picture["traces"] for picture in data["pictures"].values()] == [[0], [0, 1]]
    assert pack(CONTROLS, pictures, 10_000) == packed
