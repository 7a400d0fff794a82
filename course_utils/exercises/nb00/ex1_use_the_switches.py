"""Exercise 00.1: feed the GPU with the switches of the explorer."""

from typing import Any

from course_utils.teaching.exercise import Verdict, exercise, expect, right, todo
from course_utils.teaching.explorer import Explorer
from keepfed.formatting import percent

JOB: dict[str, Any] = {"load": 80, "step": 50}
START = {"strategy": "naive", "workers": 1}
TARGET = 0.05


@exercise("00.1", title="Feed the GPU with the switches")
def use_the_switches(box: Explorer) -> Verdict:
    """Check the state in which the learner left the explorer."""
    expect(
        isinstance(box, Explorer),
        f"This is a {type(box).__name__}, not the explorer with its switches.",
        "Pass the explorer itself: cu.check('00.1', box).",
    )
    state = dict(box.state)
    if state == JOB | START:
        return todo("Switch the strategy and the workers in the picture, then run this cell again.")
    expect(
        state["load"] == JOB["load"] and state["step"] == JOB["step"],
        "You changed the load time or the step time. That makes the job easier, but it does not "
        "load the same data faster.",
        "Set the load time back to 80 ms and the step to 50 ms. Change only strategy and workers.",
    )
    share = float(Explorer.idle.__get__(box))  # a subclass cannot replace it
    idle = f"The GPU is still idle {percent(share)} of the time."
    expect(
        state["strategy"] != "naive",
        f"{idle} The naive strategy does not use workers, however many you set. The main program "
        "loads every batch itself.",
        "Choose a strategy with workers.",
    )
    expect(
        share < TARGET or state["workers"] > 1,
        f"{idle} One worker needs 80 ms for a batch, but the GPU needs a batch every 50 ms. "
        "Prefetching and faster copies do not make the loading faster.",
        "Add a second worker.",
    )
    expect(
        share < TARGET,
        f"{idle} More workers or more prefetching do not help, because the batches are ready in "
        "time. The GPU now waits for the copy of each batch, which runs between two steps.",
        "Look at the copy row. Which strategy copies while the GPU computes?",
    )
    return right(
        f"Idle {percent(share)}. Loading and copying now overlap with computing. The biggest "
        "savings come from loading while the GPU computes and from loading faster, with a second "
        "worker or with fewer and larger requests. More prefetching saves almost nothing here."
    )
