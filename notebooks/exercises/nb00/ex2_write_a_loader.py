"""Exercise 00.2: feed the GPU with a loader of one's own."""

from course_utils.measure.spans import compute_spans
from course_utils.measure.trace import Trace
from course_utils.teaching.exercise import Verdict, exercise, expect, right, todo
from course_utils.words import percent

TARGET = 0.05
STARTING = 8  # steps in which the workers may still be starting


@exercise("00.2", title="Feed the GPU with your own loader")
def write_a_loader(naive: Trace, fed: Trace) -> Verdict:
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
