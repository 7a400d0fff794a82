"""Checks of notebook 00."""

from __future__ import annotations

from course_utils.measure.spans import compute_spans
from course_utils.measure.trace import Trace
from course_utils.teaching.exercise import Verdict, exercise, expect, right, todo
from course_utils.teaching.explorer import Explorer
from course_utils.words import percent

JOB = {"load": 80, "step": 50}
TARGET = 0.05
STARTING = 8  # steps in which the workers may still be starting


@exercise("00.1", title="Feed the GPU with the switches")
def switches(box: Explorer) -> Verdict:
    """Judge the state the learner left the explorer in."""
    state = dict(box.state)
    expect(
        all(state[name] == value for name, value in JOB.items()),
        "A faster load or a slower step is another job: the GPU waits less because there is less "
        "to wait for.",
        "Set the load time back to 80 ms and the step to 50 ms; change strategy and workers only.",
    )
    if state["strategy"] == "naive":
        return todo("Switch strategy and workers in the picture, then run this cell again.")
    expect(
        box.idle < TARGET or state["workers"] > 1,
        f"Idle is still {percent(box.idle)}. One worker needs 80 ms for a batch, the GPU 50 ms: "
        "fetching ahead, or copying faster, does not make the loading faster.",
        "Give the loader a second worker.",
    )
    expect(
        box.idle < TARGET or state["strategy"] not in {"workers", "prefetch"},
        f"Idle is still {percent(box.idle)}. More workers, or batches fetched further ahead, do "
        "not help any more: the batches are there in time; what is left is their copy to the GPU.",
        "Look at the copy lane. Which strategy copies while the GPU computes?",
    )
    expect(
        box.idle < TARGET,
        f"Idle is still {percent(box.idle)}. A copy from pinned memory is faster, but on the same "
        "stream it still waits for its turn between two steps.",
        "Try the strategy that copies the next batch during the step.",
    )
    return right(
        f"Idle {percent(box.idle)}: loading and copying hide behind the computing. What brings "
        "most is to load faster: by a second worker, or by fewer and larger requests. Fetching "
        "further ahead brings nothing here. What is left then is the copy."
    )


@exercise("00.2", title="Feed the GPU with your own loader")
def own_loader(naive: Trace, fed: Trace) -> Verdict:
    """Judge the trace of the learner's loader beside the one of the naive loop."""
    summary, before = fed.summary(), naive.summary()
    if len(fed.lanes) == len(naive.lanes) and abs(summary.au - before.au) < TARGET:
        return todo("The loader is still the naive one. Give it workers, then run the cells again.")
    expect(
        summary.samples >= before.samples,
        f"Your loop served {summary.samples:,} samples, the naive one {before.samples:,}: a loop "
        "that does less is not faster.",
        "Give the loader the same dataset, and leave no batch out.",
    )
    expect(
        summary.steps == before.steps,
        f"Your loop took {summary.steps} steps, the naive one {before.steps}: with another batch "
        "size it is another job.",
        "Set batch_size back to what it was.",
    )
    expect(
        summary.complete,
        "Some samples were served more than once. Repeating what is already loaded costs nothing "
        "and teaches the network nothing: such a speed-up is void.",
        "Give the loader the same dataset with shuffle=True.",
    )
    idle = _idle_once_running(fed)
    expect(
        idle < TARGET,
        f"Once the workers are running the GPU is still idle {percent(idle)}. Fetching further "
        "ahead does not load faster; only more workers side by side do.",
        "Divide the load time of a batch by the step time: that many workers, or a few more.",
    )
    return right(
        f"Idle {percent(before.idle)} before, {percent(idle)} once the workers were running, with "
        f"as many samples, all distinct. The first step came after {summary.start_up_s:.1f} s: "
        "starting workers is not free, least of all under spawn."
    )


def _idle_once_running(trace: Trace) -> float:
    """Return the idle share between the steps after the first `STARTING`."""
    steps = compute_spans(trace.spans)[STARTING - 1 :]
    busy = sum(step.duration_ns for step in steps[1:])
    return 1 - busy / (steps[-1].end_ns - steps[0].end_ns)
