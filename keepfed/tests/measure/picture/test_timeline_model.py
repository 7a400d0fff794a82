"""timeline_model.js, run in Node, computes the same results as Python."""

import json
import shutil
import subprocess

import numpy as np
import pytest

from keepfed.formatting import axis, duration, percent, plural
from keepfed.measure.picture import columns, module_source
from keepfed.measure.simulate import Pipeline, simulate
from keepfed.measure.spans import busy_shares, idle_gaps, lanes
from tests.measure.handmade import MS, naive, span, trace_of


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """Return a function that runs JavaScript with `given` as input, and returns `out`."""
    if not (executable := shutil.which("node")):
        pytest.skip("Node.js is not installed")
    folder = tmp_path_factory.mktemp("module")
    (folder / "timeline.mjs").write_text(module_source(), "utf-8")

    def run(script, given):
        values = f"const given = {json.dumps(given)}, out = {{}};"
        lines = ['import * as m from "./timeline.mjs";', values, script]
        (folder / "run.mjs").write_text("\n".join([*lines, "console.log(JSON.stringify(out));"]))
        command = [executable, str(folder / "run.mjs")]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert not done.returncode, done.stderr
        return json.loads(done.stdout)

    return run


def test_busy_times_match_python(node):
    overlapped = Pipeline(
        read_ms=20, decode_ms=9, copy_ms=9, step_ms=15, num_workers=3, jitter=0.3, overlap=True
    )
    traces = [naive(), simulate(overlapped), trace_of(span("main", "read", 0, 5)), trace_of()]
    script = """
    out.all = given.map(m.openTrace);
    out.shares = [...m.busyShares(out.all[0].lanes[0], 20, 110, 50)];
    """
    out = node(script, [columns(trace, 1_000) for trace in traces])
    for trace, opened in zip(traces, out["all"], strict=True):
        busy = trace.summary().utilization if trace.spans else 0
        assert opened["utilization"] == pytest.approx(busy, abs=1e-4)
        assert sum(len(lane["start"]) for lane in opened["lanes"]) == len(trace.spans)
        np.testing.assert_allclose(opened["gaps"], np.array(idle_gaps(trace)) / MS, atol=0.01)
        lasted = [lane.busy_ns() / MS for lane in lanes(trace)]
        assert [lane["busy"] for lane in opened["lanes"]] == pytest.approx(lasted, abs=0.1)
    expected = busy_shares(lanes(naive())[0].placed, np.linspace(20 * MS, 110 * MS, 51))
    np.testing.assert_allclose(np.reshape(out["shares"], expected.shape), expected, atol=1e-3)


def test_labels_axes_and_lane_order_match_python(node):
    shares, times, counts = [0, 0.001, 0.376, 0.999, 1], [0, 42e3, 7.5e6, 38e6, 2.41e9], [0, 1, 2]
    lengths = [0.03, 1, 7, 90, 400, 2_210, 61_000]
    names = ["gpu", "worker 10", "other ranks", "main", "storage", "worker 9", "copy", "consumer"]
    script = """
    const [shares, times, counts, lengths, names] = given;
    out.percent = shares.map(m.percent);
    out.duration = times.map((ns) => m.duration(ns / 1e6));
    out.plural = counts.map((n) => m.plural(n, "gap"));
    out.names = m.sortLanes(names);
    out.axes = lengths.map((length) => m.axis(0, length, 8));
    """
    out = node(script, [shares, times, counts, lengths, names])
    assert out["percent"] == [percent(share) for share in shares]
    assert out["duration"] == [duration(ns) for ns in times]
    assert out["plural"] == [plural(count, "gap") for count in counts]
    assert out["names"] == trace_of(*(span(name, "read", 0, 1) for name in names)).lanes
    for length, found in zip(lengths, out["axes"], strict=True):
        expected = axis(round(length * MS), 8)
        assert [text for _, text in found] == list(expected.values())
        assert [at for at, _ in found] == pytest.approx([ns / MS for ns in expected])


def test_view_contains_earlier_spans_and_finds_nested_ones(node):
    spans = [span("main", "read", start, start + 1) for start in range(1, 50)]
    script = """
    const lane = m.openTrace(given).lanes[0], [first, last] = m.visible(lane, 60, 70);
    out.visible = last - first;
    out.at = [65, 10.5, 101].map((time) => m.spanAt(lane, time, 0));
    """
    out = node(script, columns(trace_of(span("main", "wait", 0, 100), *spans), 1_000))
    assert out["visible"] >= 1
    assert out["at"] == [0, 10, -1]
