"""Find out why a training loop waits: run the loader alone, the step alone, and both together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from course_utils.measure.trace import Trace

Cause = Literal[
    "GPU-bound",
    "storage",
    "CPU",
    "collate or IPC",
    "transfer",
    "main process",
    "start-up",
    "memory",
    "uneven",
]


@dataclass(frozen=True)
class Diagnosis:
    """The verdict on a loop; shows itself as a page of text or HTML."""

    cause: Cause
    stage: str  # of the loader, such as "decode", if it names one; else ""
    verdict: str  # one sentence
    change: str  # the one thing to do, such as "num_workers=4"
    gain: float  # how many times faster the model predicts the loop to be after the change
    headspace: float  # how many times faster it would be with an infinitely fast loader
    loader_s: float  # per batch, the loader alone
    step_s: float  # per batch, the step alone
    together_s: float  # per batch, both, with start-up shared out among the batches of an epoch
    evidence: Mapping[str, str]  # what was measured -> the figure, as the page shows them
    trace: Trace  # of loader and step together


def diagnose(
    loader: Iterable[Any],
    step: Callable[[Any], Any],
    *,
    seconds: float = 40.0,
    synchronize: Callable[[], Any] | None = None,
) -> Diagnosis:
    """Say what a training loop waits for, and the one change to make.

    The loader is left as it was, and no process of it stays. The step really trains: give it a copy
    of the model if that matters.

    Args:
        loader: a `DataLoader` of any kind, or anything that gives batches each time it is iterated.
        step: what the loop does with one batch: upload it and train on it.
        seconds: about how long it may take, start-up of workers included.
        synchronize: wait until the device has done all it was given; needed only for a device that
            torch.accelerator does not know.

    Raises:
        CourseError: the loop cannot be judged; the sentence says what to do.
    """
    raise NotImplementedError
