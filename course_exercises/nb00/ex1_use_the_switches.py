"""Exercise 00.1: feed the GPU with the switches of the explorer."""

from typing import Any

from course_utils.teaching.exercise import Verdict, exercise, expect, right, todo
from course_utils.teaching.explorer import Explorer
from keepfed.words import percent

JOB: dict[str, Any] = {"load": 80, "step": 50}
START = {"strategy": "naive", "workers": 1}
TARGET = 0.05


@exercise("00.1", title="Feed the GPU with the switches")
def use_the_switches(box: Explorer) -> Verdict:
    """Judge the state the learner left the explorer in."""
    expect(
        isinstance(box, Explorer),
        f"This is {type(box).__name__}, not the explorer with its switches.",
        "Hand over the explorer itself: cu.check('00.1', box).",
    )
    state = dict(box.state)
    if state == JOB | START:
        return todo("Switch strategy and workers in the picture, then run this cell again.")
    expect(
        state["load"] == JOB["load"] and state["step"] == JOB["step"],
        "Another load or step time is another job: the GPU waits less or more because the work is "
        "another, not because it is done better.",
        "Set the load time back to 80 ms and the step to 50 ms; change strategy and workers only.",
    )
    idle = f"Idle is still {percent(box.idle)}."
    expect(
        state["strategy"] != "naive",
        f"{idle} The naive strategy uses no worker, however many you set: the main program loads "
        "every batch itself.",
        "Choose a strategy that hands the loading to workers.",
    )
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
        "Look at the copy row. Which strategy copies while the GPU computes?",
    )
    expect(
        box.idle < TARGET,
        f"{idle} A copy from pinned memory is faster, but it still waits for its turn between two "
        "steps.",
        "Try the strategy that copies the next batch during the step.",
    )
    return right(
        f"Idle {percent(box.idle)}: loading and copying hide behind the computing. Most is saved "
        "by loading while the GPU computes, and by loading faster: with a second worker, or in "
        "fewer and larger requests. Fetching further ahead saves next to nothing here."
    )
