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


@pytest.mark.parametrize(
    "trace",
    [
        simulate(Pipeline(read_ms=20, decode_ms=9, copy_ms=3, step_ms=15, jitter=0.3)),
        simulate(Pipeline(read_ms=20, step_ms=15, num_workers=3, jitter=0.3, start_up_ms=50)),
        simulate(
            Pipeline(read_ms=20, copy_ms=9, step_ms=5, num_workers=4, pinned=True, overlap=True)
        ),
        trace_of(span("main", "read", 0, 5)),
        trace_of(),
    ],
    ids=["naive", "workers", "overlap", "no step", "nothing"],
)
def test_utilisation_gaps_and_busy_times_are_those_of_python(node, trace):
    opened = node("Object.assign(out, m.openTrace(given));", columns(trace, 1_000))
    busy = trace.summary().utilisation if trace.spans else 0
    assert opened["utilisation"] == pytest.approx(busy, abs=1e-4)
    assert opened["spans"] == len(trace.spans)
    gaps = np.array(idle_gaps(trace)) / MS
    np.testing.assert_allclose(opened["gaps"], gaps, atol=0.01)
    lasted = [lane.busy_ns() / MS for lane in lanes(trace)]
    assert [lane["busy"] for lane in opened["lanes"]] == pytest.approx(lasted, abs=0.1)


def test_shares_of_pixel_columns_are_those_of_python(node):
    script = "out.shares = [...m.busyShares(m.openTrace(given).lanes[0], 20, 110, 50)];"
    expected = busy_shares(lanes(naive())[0], (20 * MS, 110 * MS), 50)
    shares = np.reshape(node(script, NAIVE)["shares"], expected.shape)
    np.testing.assert_allclose(shares, expected, atol=1e-3)


def test_a_long_span_that_began_before_the_view_is_visible(node):
    spans = [span("main", "wait", 0, 100)]
    spans += [span("main", "read", start, start + 1) for start in range(1, 50)]
    script = """
    const lane = m.openTrace(given).lanes[0], [first, last] = m.visible(lane, 60, 70);
    out.stages = [...lane.stage.slice(first, last)].length;
    out.at = [65, 10.5, 101].map((time) => m.spanAt(lane, time, 0));
    """
    out = node(script, columns(trace_of(*spans), 1_000))
    assert out["stages"] >= 1
    assert out["at"] == [0, 10, -1]


def test_words_are_those_of_python(node):
    shares, times, counts = [0, 0.001, 0.376, 0.999, 1], [0, 42e3, 7.5e6, 38e6, 2.41e9], [0, 1, 2]
    script = """
    out.percent = given[0].map(m.percent);
    out.duration = given[1].map((ns) => m.duration(ns / 1e6));
    out.plural = given[2].map((n) => m.plural(n, "gap"));
    """
    assert node(script, [shares, times, counts]) == {
        "percent": [percent(share) for share in shares],
        "duration": [duration(ns) for ns in times],
        "plural": [plural(count, "gap") for count in counts],
    }


def test_the_axis_is_that_of_python(node):
    lengths = [0.03, 1, 7, 90, 400, 2_210, 61_000]
    script = """
    out.found = given.map((length) => {
        const { step, at } = m.ticks(0, length, 8);
        return at.map((ms) => [ms, m.tickText(ms, step)]);
    });
    """
    for length, found in zip(lengths, node(script, lengths)["found"], strict=True):
        expected = axis(round(length * MS), 8)
        assert [text for _, text in found] == list(expected.values())
        assert [at for at, _ in found] == pytest.approx([ns / MS for ns in expected])


def test_states_are_named_as_in_python(node):
    controls = [Control("strategy", "Strategy", ["naive"]), Control("load", "Load", [20, 80])]
    state = {"strategy": "naive", "load": 80}
    given = {"controls": [vars(control) for control in controls], "state": state}
    script = "out.key = m.keyOf(given.controls, given.state);"
    assert node(script, given)["key"] == key(controls, state)


def test_packed_pictures_can_be_unpacked(node):
    packed = pack([], {"": Picture([naive()])})
    out = node("Object.assign(out, await m.unpack(new Uint8Array(given)));", list(packed))
    assert out["pictures"][""]["sentence"].startswith("Naive: the GPU computes 25 %")


def test_the_story_of_a_batch_is_told_in_order(node):
    assert node("out.story = m.batchStory(m.openTrace(given), 1);", NAIVE)["story"] == (
        "Batch 1: wait 30 ms (main), read 24 ms (main), decode 6.0 ms (main), compute 10 ms (gpu)."
    )


def test_lanes_are_ordered_as_in_a_trace_and_an_unused_one_keeps_its_place(node):
    names = ["gpu", "worker 10", "main", "storage", "worker 9", "copy", "consumer"]
    script = """
    const scene = m.arrange([m.openTrace(given[1])], 800, ["worker 0", "main", "gpu"]);
    out.names = m.inOrder(given[0]);
    out.lanes = scene.panels[0].lanes.map(({ lane }) => [lane.name, lane.start.length]);
    """
    out = node(script, [names + names, NAIVE])
    assert out["names"] == trace_of(*(span(name, "read", 0, 1) for name in names)).lanes
    assert out["lanes"] == [["worker 0", 0], ["main", 9], ["gpu", 3]]


def test_traces_are_stacked_and_the_gpu_is_highest(node):
    script = """
    const scene = m.arrange(given.map(m.openTrace), 800);
    out.tops = scene.panels.flatMap((panel) => panel.lanes.map((lane) => lane.y));
    out.heights = scene.panels[0].lanes.map((lane) => lane.height);
    const { y } = scene.panels[1].lanes[1], view = { from: 0, to: 120 };
    const hit = m.locate(scene, view, (scene.left + scene.right) / 2, y + 5);
    out.hit = [hit.lane.name, hit.time];
    """
    out = node(script, [NAIVE, NAIVE])
    assert out["tops"] == sorted(out["tops"])
    assert out["heights"][1] > out["heights"][0]
    assert out["hit"] == ["gpu", pytest.approx(60)]
