"""Exercise 00.1: feed the GPU with the switches of the explorer."""

from course_utils.teaching.exercise import Verdict, exercise, expect, right, todo
from course_utils.teaching.explorer import Explorer
from course_utils.words import percent

JOB = {"load": 80, "step": 50}
TARGET = 0.05


@exercise("00.1", title="Feed the GPU with the switches")
def use_the_switches(box: Explorer) -> Verdict:
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
    idle = f"Idle is still {percent(box.idle)}."
    expect(
        box.idle < TARGET or state["workers"] > 1,
        f"{idle} One worker needs 80 ms for a batch, the GPU 50 ms: fetching ahead, or copying "
        "faster, does not make the loading faster.",
        "Give the loader a second worker.",
    )
    expect(
        box.idle < TARGET or state["strategy"] not in {"workers", "prefetch"},
        f"{idle} More workers, or batches fetched further ahead, do not help any more: the batches "
        "are there in time; what is left is their copy to the GPU.",
        "Look at the copy lane. Which strategy copies while the GPU computes?",
    )
    expect(
        box.idle < TARGET,
        f"{idle} A copy from pinned memory is faster, but on the same stream it still waits for "
        "its turn between two steps.",
        "Try the strategy that copies the next batch during the step.",
    )
    return right(
        f"Idle {percent(box.idle)}: loading and copying hide behind the computing. What brings "
        "most is to load faster: by a second worker, or by fewer and larger requests. Fetching "
        "further ahead brings nothing here. What is left then is the copy."
    )
