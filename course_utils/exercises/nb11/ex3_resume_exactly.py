"""Exercise 11.3: a loader that continues exactly where a killed process had stopped."""

import io
from collections.abc import Generator
from functools import partial
from itertools import chain, islice
from typing import Any, NamedTuple

import torch
from torch.utils.data import Dataset

from course_utils.exercises.judging.chance import expect_no_seed
from course_utils.exercises.judging.compare import Slip, compare, short
from course_utils.exercises.judging.probes import process_unchanged
from course_utils.exercises.nb11.problem import BATCH, OrderedLoader
from course_utils.teaching.exercise import Verdict, exercise, expect_a_class, right
from keepfed.formatting import plural

SAMPLES, EPOCHS = 84, 3
SIZE = -(-SAMPLES // BATCH)  # batches in an epoch, of which the last is half full
REST, READ, AHEAD = "the rest", "samples read", "samples read at once"
HERE, FEW = "read in the main process", "few"


class Plan(NamedTuple):
    """Lives of a training: the batches that each takes before it ends."""

    taken: tuple[int, ...] = ()
    workers: tuple[int, ...] = (0, 0, 0)  # in each life, and in the one that runs to the end
    goes_on: bool = False  # the first life left the loop by `break`, and loops again
    between: bool = False  # the state is saved after an epoch, before the next loop
    used: bool = False  # the last loader has served 3 batches before it gets the state

    def __str__(self) -> str:
        end = "left by `break`" if self.goes_on else "killed"
        lives = [f"{end} after {plural(taken, 'batch')}" for taken in self.taken] or ["not killed"]
        loader = "a loader that is already in use" if self.used else "a loader"
        workers = plural(self.workers[len(self.taken)], "worker")
        return f"{loader} with {workers}, {' and again '.join(lives)}"


PLANS = (
    Plan(),
    Plan(),  # in a kernel that has loaded before
    *(Plan((taken,)) for taken in (2, 0, SIZE, SIZE + 3, SIZE - 1, 2 * SIZE)),
    *(Plan(taken) for taken in ((2, 3), (9, 5))),
    *(Plan((2,), goes_on=True), Plan((2,), used=True)),
    Plan((SIZE,), between=True),
    *(Plan((3,), workers=(2, 2)), Plan((4,), workers=(0, 2))),
)


class Counted(Dataset[int]):
    """Sample n is the number n. Counts the reads of all processes, and of this one."""

    def __init__(self) -> None:
        self.reads, self.reads_here = torch.zeros(SAMPLES, dtype=torch.int16), 0
        self.reads.share_memory_()  # type: ignore[no-untyped-call]

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> int:
        self.reads[index] += 1
        self.reads_here += 1
        return index


SLIPS = (
    Slip(
        lambda plan, got, _: sum(plan.taken) > 0 and got[REST][:1] == [_name(sum(plan.taken) - 1)],
        "For {case}, the last batch of the loop comes again. Code after `yield` runs only when "
        "the loop requests the next batch, and the state was saved before that.",
        "Count each batch before you yield it, even the last one of an epoch.",
    ),
    Slip(
        lambda _, got, wanted: got[REST] == wanted[REST] and got[READ] > wanted[READ],
        "For {case}, {got[samples read]} samples are read to serve {wanted[samples read]}. The "
        "restart loads batches of the past and discards them.",
        "Cut the list of batches before you load it: self.batches(...)[self.taken:].",
    ),
)


@exercise("11.3", title="Resume exactly", seconds=120)
def resume_exactly(loader_class: type[Any]) -> Verdict:
    """Judge a loader that is killed and restarted, without workers and with others."""
    expect_a_class(loader_class, "a loader", "creates one in each start")
    compare(partial(_rest, loader_class), _plain, PLANS, *SLIPS, show=str)
    expect_no_seed(lambda: [*islice(loader_class(Counted()), 1)])
    return right(
        "Wherever the training is killed, the rest of the epoch comes once and in order, then the "
        "next epoch, with any number of workers. Nothing is read for nothing."
    )


def _name(place: int) -> str:
    return f"batch {place % SIZE} of epoch {place // SIZE}"


def _order() -> list[list[int]]:
    """Return the batches of a training."""
    return [*chain.from_iterable(map(OrderedLoader(Counted()).batches, range(EPOCHS)))]


def _plain(plan: Plan) -> dict[str, Any]:
    taken, order = sum(plan.taken), _order()
    read = sum(map(len, order[taken:]))
    here = 0 if plan.workers[len(plan.taken)] else read
    names = [*map(_name, range(taken, len(order)))]
    return {REST: names, READ: read, HERE: here, AHEAD: FEW}


def _rest(loader_class: type[Any], plan: Plan) -> dict[str, Any]:
    """Return facts about what the last loader of a plan serves."""
    lives = [loader_class(Counted(), workers) for workers in plan.workers]
    saved = b""
    with process_unchanged(may_draw=True):
        for number, taken in enumerate(plan.taken):
            _load(lives[number], saved)
            saved = _save(lives[number], taken, plan)
        last = lives[0 if plan.goes_on else len(plan.taken)]
        if plan.used:
            _save(last, 3, plan)
        state = _load(last, b"" if plan.goes_on else saved)
        data = last.dataset
        data.reads_here = int(data.reads.zero_().sum())
        served = _served(last)
        with process_unchanged(state, may_draw=True):
            first = [*islice(served, 1)]
        ahead = int(data.reads.sum())
        batches = [*first, *islice(served, len(_plain(plan)[REST]) - 1)]
        served.close()
    order = _order()
    names = [_name(order.index(one)) if one in order else short(one) for one in batches]
    most = (6 if last.num_workers else 2) * BATCH
    return {
        REST: names,
        READ: int(data.reads.sum()),
        HERE: data.reads_here,
        AHEAD: FEW if ahead <= most else ahead,
    }


def _served(loader: Any) -> Generator[Any, None, None]:
    """Yield batches epoch after epoch. An epoch may be empty, but not two in a row."""
    empty, size = 0, len(loader.batches(0))
    while empty < 2:
        empty += 1
        for number, batch in enumerate(loader):
            empty = 0
            tensor = isinstance(batch, torch.Tensor)
            yield (batch.tolist() if tensor else batch) if number < size else "no end of the epoch"


def _save(loader: Any, taken: int, plan: Plan) -> bytes:
    """Return the state inside the loop that has `taken` batches. It is written a step later."""
    served, file = _served(loader), io.BytesIO()
    for _ in loader if plan.between else islice(served, taken):
        pass
    state = loader.state_dict()
    if not plan.goes_on:
        next(served, None)
    torch.save(state, file)
    served.close()
    return file.getvalue()


def _load(loader: Any, saved: bytes) -> Any:
    if not saved:
        return None
    state = torch.load(io.BytesIO(saved), weights_only=False)
    loader.load_state_dict(state)
    return state
