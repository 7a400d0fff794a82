"""Call a learner's function on several ranks: processes that communicate through Gloo."""

import tempfile
from collections.abc import Callable, Sequence
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from torch import distributed

from course_utils.teaching.notebook import explain, loaded_context

PATIENCE_S = 8  # until a rank stops waiting for the others


class Failure(NamedTuple):
    """An error on a rank."""

    kind: str
    text: str  # with the learner's line
    left_alone: bool  # it waited for ranks that had left


def failure_of(error: BaseException) -> Failure:
    """Describe an error, so that it can be sent to another process."""
    left = any(word in str(error) for word in ("imed out", "closed by peer", "reset by"))
    return Failure(type(error).__name__, explain(error), left)


def run_ranks(function: Callable[..., Any], *args: Any, ranks: int) -> list[Any]:
    """Return the result of `function(*args)` on each rank, or the `Failure` that ended it.

    The processes may be spawned, so the function and its arguments must be importable.
    """
    context = loaded_context()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        started = context.Barrier(ranks)  # on a busy machine, a start may take seconds
        ends, processes = [], []
        for rank in range(ranks):
            ours, theirs = context.Pipe(duplex=False)
            place = rank, ranks, Path(folder) / "meet", started
            process = context.Process(target=_rank, args=(place, theirs, function, args))
            process.start()
            theirs.close()
            ends.append(ours)
            processes.append(process)
        try:
            return [_received(end) for end in ends]
        finally:
            for process in processes:
                process.kill()
                process.join()


def _rank(
    place: tuple[int, int, Path, Any],
    answer: Connection,
    function: Callable[..., Any],
    args: Sequence[Any],
) -> None:
    rank, ranks, file, started = place
    started.wait()
    distributed.init_process_group(
        "gloo",
        store=distributed.FileStore(str(file), ranks),
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=PATIENCE_S),
    )
    try:
        found = function(*args)
    except BaseException as error:
        found = failure_of(error)
    answer.send(found)


def _received(end: Connection) -> Any:
    try:
        return end.recv()
    except EOFError:  # Gloo aborts a process whose ranks call different collectives
        return Failure("EOFError", "its process was aborted", left_alone=True)
