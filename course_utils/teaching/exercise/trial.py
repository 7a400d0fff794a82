"""Try a learner's code as it will run: in a worker, on a rank, in threads that may die."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.utils.data._utils import worker as torch_worker

from course_utils.teaching.exercise.verdict import expect


def expect_a_class(attempt: Any, what: str, why: str) -> None:
    """Refuse an object where a class is wanted: `what` it is, and `why` the check needs more."""
    expect(
        isinstance(attempt, type),
        f"This is {what}, not a class. The check {why}.",
        "Hand over the class itself, without parentheses.",
    )


def expect_in_a_file(attempt: Any) -> None:
    """Refuse what lives only in the notebook, before a worker dies of it."""
    name = getattr(attempt, "__qualname__", type(attempt).__qualname__)
    expect(
        "<lambda>" not in name and "<locals>" not in name,
        f"A worker cannot get {name}: it imports what it needs by name, and this has none.",
        "Define it with def or class, outside of any function, in a %%worker_module cell.",
    )
    expect(
        getattr(attempt, "__module__", "") != "__main__",
        f"{name} lives in the notebook. A worker is another process: it can import a file, but it "
        "cannot see the notebook.",
        "Begin its cell with %%worker_module and a name, and run it again.",
    )


@contextmanager
def in_worker(worker: int, num_workers: int) -> Iterator[None]:
    """Make `get_worker_info` answer as in that worker; with 0 workers, as in the main process."""
    before = torch_worker._worker_info
    info: Any = None
    if num_workers:
        nothing: Any = None
        info = torch_worker.WorkerInfo(
            id=worker, num_workers=num_workers, seed=worker, dataset=nothing
        )
    torch_worker._worker_info = info
    try:
        yield
    finally:
        torch_worker._worker_info = before


@contextmanager
def as_rank(rank: int, world_size: int) -> Iterator[None]:
    """Set the variables that torchrun sets."""
    wanted = {"RANK": str(rank), "WORLD_SIZE": str(world_size)}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def quiet_threads() -> Iterator[None]:
    """Keep the tracebacks of the learner's threads from the page: the verdict says what to do."""
    before = threading.excepthook
    threading.excepthook = lambda _: None
    try:
        yield
    finally:
        threading.excepthook = before
