"""What timeline_model.js computes, run in Node and held against Python."""

import json
import shutil
import subprocess

import numpy as np
import pytest

from course_utils.measure.picture import Control, Picture, key
from course_utils.measure.picture.model import columns, pack
from course_utils.measure.picture.timeline import module_source
from course_utils.measure.simulate import Pipeline, simulate
from course_utils.measure.spans import busy_shares, idle_gaps, lanes
from course_utils.words import axis, duration, percent, plural
from tests.measure.handmade import MS, naive, span, trace_of

NAIVE = columns(naive(), 1_000)  # ticks of a microsecond


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """Run a piece of JavaScript that fills `out` from `given`, and return what it filled in."""
    if not (executable := shutil.which("node")):
        pytest.skip("no Node.js here to run the module without a browser")
    folder = tmp_path_factory.mktemp("module")
    (folder / "timeline.mjs").write_text(module_source(), "utf-8")

    def run(script, given=None):
        lines = [
            'import * as m from "./timeline.mjs";',
            f"const given = {json.dumps(given)}, out = {{}};",
            script,
            "console.log(JSON.stringify(out));",
        ]
        (folder / "run.mjs").write_text("\n".join(lines), "utf-8")
        command = [executable, str(folder / "run.mjs")]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert not done.returncode, done.stderr
        return json.loads(done.stdout)

    return run


def test_utilisation_gaps_and_busy_times_are_those_of_python(node):
    overlapped = Pipeline(
        read_ms=20, decode_ms=9, copy_ms=9, step_ms=15, num_workers=3, jitter=0.3, overlap=True
    )
    traces = [simulate(overlapped), naive(), trace_of(span("main", "read", 0, 5)), trace_of()]
    opened = node("out.all = given.map(m.openTrace);", [columns(t, 1_000) for t in traces])["all"]
    for trace, one in zip(traces, opened, strict=True):
        busy = trace.summary().utilisation if trace.spans else 0
        assert one["utilisation"] == pytest.approx(busy, abs=1e-4)
        assert one["spans"] == len(trace.spans)
        np.testing.assert_allclose(one["gaps"], np.array(idle_gaps(trace)) / MS, atol=0.01)
        lasted = [lane.busy_ns() / MS for lane in lanes(trace)]
        assert [lane["busy"] for lane in one["lanes"]] == pytest.approx(lasted, abs=0.1)


def test_shares_of_pixel_columns_are_those_of_python(node):
    script = "out.shares = [...m.busyShares(m.openTrace(given).lanes[0], 20, 110, 50)];"
    expected = busy_shares(lanes(naive())[0], (20 * MS, 110 * MS), 50)
    shares = np.reshape(node(script, NAIVE)["shares"], expected.shape)
    np.testing.assert_allclose(shares, expected, atol=1e-3)


def test_words_axes_and_states_are_those_of_python(node):
    shares, times, counts = [0, 0.001, 0.376, 0.999, 1], [0, 42e3, 7.5e6, 38e6, 2.41e9], [0, 1, 2]
    lengths = [0.03, 1, 7, 90, 400, 2_210, 61_000]
    controls = [Control("strategy", "Strategy", ["naive"]), Control("load", "Load", [20, 80])]
    state = {"strategy": "naive", "load": 80}
    script = """
    const [shares, times, counts, lengths, controls, state] = given;
    out.percent = shares.map(m.percent);
    out.duration = times.map((ns) => m.duration(ns / 1e6));
    out.plural = counts.map((n) => m.plural(n, "gap"));
    out.key = m.keyOf(controls, state);
    out.axes = lengths.map((length) => {
        const { step, at } = m.ticks(0, length, 8);
        return at.map((ms) => [ms, m.tickText(ms, step)]);
    });
    """
    out = node(script, [shares, times, counts, lengths, [vars(c) for c in controls], state])
    assert out["percent"] == [percent(share) for share in shares]
    assert out["duration"] == [duration(ns) for ns in times]
    assert out["plural"] == [plural(count, "gap") for count in counts]
    assert out["key"] == key(controls, state)
    for length, found in zip(lengths, out["axes"], strict=True):
        expected = axis(round(length * MS), 8)
        assert [text for _, text in found] == list(expected.values())
        assert [at for at, _ in found] == pytest.approx([ns / MS for ns in expected])


def test_packed_pictures_can_be_unpacked_and_a_batch_tells_its_story(node):
    script = """
    Object.assign(out, await m.unpack(new Uint8Array(given[0])));
    out.story = m.batchStory(m.openTrace(given[1]), 1);
    """
    out = node(script, [list(pack([], {"": Picture([naive()])}, 10_000)), NAIVE])
    assert out["pictures"][""]["sentence"].startswith("Naive: the GPU computes 25 %")
    assert out["story"] == (
        "Batch 1: wait 30 ms (main), read 24 ms (main), decode 6.0 ms (main), compute 10 ms (gpu)."
    )


def test_lanes_and_panels_are_arranged_and_the_pointer_finds_spans(node):
    names = ["gpu", "worker 10", "main", "storage", "worker 9", "copy", "consumer"]
    long = [span("main", "wait", 0, 100)]
    long += [span("main", "read", start, start + 1) for start in range(1, 50)]
    script = """
    const [names, naive, long] = given;
    const one = m.arrange([m.openTrace(naive)], 800, ["worker 0", "main", "gpu"]);
    out.names = m.inOrder(names);
    out.lanes = one.panels[0].lanes.map(({ lane }) => [lane.name, lane.start.length]);
    const two = m.arrange([naive, naive].map(m.openTrace), 800);
    out.tops = two.panels.flatMap((panel) => panel.lanes.map((lane) => lane.y));
    out.heights = two.panels[0].lanes.map((lane) => lane.height);
    const { y } = two.panels[1].lanes[1], view = { from: 0, to: 120 };
    const hit = m.locate(two, view, (two.left + two.right) / 2, y + 5);
    out.hit = [hit.lane.name, hit.time];
    const lane = m.openTrace(long).lanes[0], [first, last] = m.visible(lane, 60, 70);
    out.visible = last - first;
    out.at = [65, 10.5, 101].map((time) => m.spanAt(lane, time, 0));
    """
    out = node(script, [names + names, NAIVE, columns(trace_of(*long), 1_000)])
    assert out["names"] == trace_of(*(span(name, "read", 0, 1) for name in names)).lanes
    assert out["lanes"] == [["worker 0", 0], ["main", 9], ["gpu", 3]]  # an unused one is kept
    assert out["tops"] == sorted(out["tops"])
    assert out["heights"][1] > out["heights"][0]
    assert out["hit"] == ["gpu", pytest.approx(60)]
    assert out["visible"] >= 1  # what began before the view is visible
    assert out["at"] == [0, 10, -1]
