"""Call a learner's function in several ranks at a time: processes that meet through Gloo."""

import tempfile
from collections.abc import Callable, Sequence
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from torch import distributed

from course_utils.teaching.notebook import explain, loaded_context

PATIENCE_S = 8  # after which a rank that others leave alone gives up


class Failure(NamedTuple):
    """What a rank raised."""

    kind: str
    text: str  # with the learner's line
    left_alone: bool  # it met the others no more


def run_ranks(function: Callable[..., Any], *args: Any, ranks: int) -> list[Any]:
    """Return what `function(*args)` returns in each rank, or the `Failure` that ended it there.

    Both go to processes that may not be forked, so they have to be importable.
    """
    context = loaded_context()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        started = context.Barrier(ranks)  # on a busy machine, that may take some seconds
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
        # who is waited for in vain has gone, or waits for something else
        left_alone = any(word in str(error) for word in ("imed out", "closed by peer", "reset by"))
        found = Failure(type(error).__name__, explain(error), left_alone)
    answer.send(found)


def _received(end: Connection) -> Any:
    try:
        return end.recv()
    except EOFError:  # Gloo ends a process that meets others for something else
        return Failure("EOFError", "its process was ended", left_alone=True)
