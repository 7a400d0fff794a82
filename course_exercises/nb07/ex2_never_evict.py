"""Check of notebook 07: a cache that never evicts, judged by the requests that it saves."""

import multiprocessing
import pickle
import re
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, get_worker_info

from course_exercises.judging import loader
from course_utils.teaching.exercise import (
    Verdict,
    exercise,
    expect,
    expect_in_a_file,
    right,
    too_busy,
)
from keepfed.formatting import plural
from keepfed.loaders.workers import nbytes

ROWS = 60
KINDS = (((256,), np.int64), ((16, 40), np.int16))  # of a sample
NUMBERS = [0, -1, -9, -99, -999, -9999]  # of which a sample may consist; none means "not there"

WAIT_FOR_WORKER_S = 60.0  # which on a busy machine starts late
ALONE_S = 1.0  # until a reader takes it that no other one comes
LINE_S = 0.001  # for each line of the learner's, so that two get into each other's way
LINES = range(12)  # of the learner's, before one of which a second reader asks
WAIT_S = 0.1  # for that one, who may have to wait until the first has left a lock

Make = type[Any]
_SPAWN = multiprocessing.get_context("spawn")  # whose gates any worker can get


class Rows(Dataset[torch.Tensor]):
    """Samples of a dataset that counts the requests for each, in all processes together."""

    def __init__(self, shape: tuple[int, ...], dtype: type[np.integer[Any]]):
        """Make the samples."""
        rng = np.random.default_rng(7)
        ends = np.iinfo(dtype)
        numbers = rng.integers(1, ends.max, (ROWS, *shape), dtype)
        for row, number in enumerate([*NUMBERS, ends.min, ends.max], 7):
            numbers[row] = number
        self.values, self.sample_bytes = torch.from_numpy(numbers), numbers[0].nbytes
        self.counts = torch.zeros(ROWS, dtype=torch.int64)
        self.counts.share_memory_()  # type: ignore[no-untyped-call]
        self.fails_once = -1  # the row whose next read raises

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> torch.Tensor:
        row = range(ROWS)[index]
        if row == self.fails_once:
            self.fails_once = -1
            raise OSError("the storage did not answer")
        self.counts[row] += 1
        return self.values[row].clone()

    @property
    def requests(self) -> int:
        """Reads so far."""
        return int(self.counts.sum())


class Crowded(Rows):
    """Rows that two workers, while there are two, get at the same moment."""

    def __init__(self, shape: tuple[int, ...], dtype: type[np.integer[Any]]):
        """Make the samples, and the gate."""
        super().__init__(shape, dtype)
        self._gate = _SPAWN.Barrier(2)

    def __getitem__(self, index: int) -> torch.Tensor:
        if get_worker_info():
            with suppress(threading.BrokenBarrierError):  # who holds a lock reads alone
                self._gate.wait(ALONE_S)
        return super().__getitem__(index)


class Slowly(Dataset[torch.Tensor]):
    """A learner's dataset that two workers fill in step, line by line."""

    def __init__(self, cached: Any):
        """Make the gate at which they begin."""
        self._cached, self._gate, self._begun = cached, _SPAWN.Barrier(2), False
        self.met = _SPAWN.Event()  # there, the two of them

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> torch.Tensor:
        if not self._begun:
            self._gate.wait(WAIT_FOR_WORKER_S)
            self._begun = True
            self.met.set()
        file = sys.modules[type(self._cached).__module__].__file__

        def give_way(frame: FrameType, event: str, argument: object) -> Any:
            if frame.f_code.co_filename == file:
                time.sleep(LINE_S)
                return give_way
            return None

        sys.settrace(give_way)
        try:
            return self._cached[index]  # type: ignore[no-any-return]
        finally:
            sys.settrace(None)


@exercise("07.2", title="A cache that never evicts", seconds=180)
def never_evict(cached_class: Make) -> Verdict:
    """Judge a wrapper `Cached(dataset, budget)`: what it saves, keeps, and holds across workers."""
    for shape, dtype in KINDS:
        rows = Rows(shape, dtype)
        _judge_everything_fits(cached_class, rows)
        _judge_accidents(cached_class, rows)
        for share in (24.7 / ROWS, 0.9, 0, 0.7 / ROWS):
            _judge_share(cached_class, rows, share)
    expect_in_a_file(cached_class)
    _judge_room(cached_class, Rows(*KINDS[0]))
    _judge_second(cached_class, Rows(*KINDS[0]))
    for how in _ways_to_start():
        _judge_workers(cached_class, Crowded(*KINDS[0]), how)
    return right(
        "What fits the budget is read once and never again, in the notebook and in workers, "
        f"started by {' and by '.join(_ways_to_start())}; the share found is the share that fits."
    )


def _ways_to_start() -> list[str]:
    """Name a way that pickles the dataset, and `fork`, which does not, where that is safe."""
    known = multiprocessing.get_all_start_methods()
    pickles = "forkserver" if "forkserver" in known else "spawn"
    return ["fork", pickles] if sys.platform == "linux" else [pickles]


def _judge_everything_fits(make: Make, rows: Rows) -> None:
    before = rows.requests
    cached = make(rows, 2 * ROWS * rows.sample_bytes)
    expect(
        len(cached) == ROWS,
        f"A dataset of {ROWS} samples has {len(cached)} with your cache around it.",
        "len(cached) is len(self.dataset).",
    )
    _hits(cached, rows, range(ROWS), "The first epoch")
    first = rows.requests - before
    expect(
        first < 1.2 * ROWS,  # what samples are like may be asked for before
        f"With room for all, the first epoch makes {plural(first, 'request')} for {ROWS} samples.",
        "Read a sample once: keep it, and hand out what was read.",
    )
    hits = _hits(cached, rows, range(ROWS), "The second epoch")
    expect(
        hits > 0,
        f"There is room for all {ROWS} samples, and the second epoch reads all of them again: "
        "nothing is kept.",
        "In __getitem__: if the sample is there, return it; else read it, keep it, return it.",
    )
    expect(
        hits == ROWS,
        f"There is room for all {ROWS} samples, and the second epoch still makes "
        f"{plural(ROWS - hits, 'request')}. Is there room, and is it noted beside a sample that it "
        "is there? For a sample may be all zeros, or -1, or whatever number stands for nothing.",
        "A budget of B bytes has room for B // sample.nbytes samples; a tensor of torch.bool notes "
        "which are there.",
    )


def _judge_accidents(make: Make, rows: Rows) -> None:
    """Change samples in place, as an augmentation may, and let a read fail; then ask again."""
    cached = make(rows, ROWS * rows.sample_bytes)
    for when in ("just read", "kept"):
        cached[3].zero_()
        expect(
            cached[3].any(),
            f"Somebody changed a sample that was {when} in place, and from then on the cache "
            "hands out the changed one: it gave away its own memory.",
            "Return a copy of what you keep: self.kept[index].clone().",
        )
    rows.fails_once = 5
    got: list[torch.Tensor] = []
    with suppress(OSError):
        got.append(cached[5])
    rows.fails_once = -1
    expect(
        all(torch.equal(one, rows.values[5]) for one in (*got, cached[5])),
        "One read failed, and the cache hands out something else for that sample: it was noted as "
        "there before it was, or the error is hushed up.",
        "Read the sample, write it, and only then note that it is there; let the error through.",
    )


def _judge_share(make: Make, rows: Rows, share: float) -> None:
    budget = int(share * ROWS * rows.sample_bytes)
    fits = budget // rows.sample_bytes
    cached = make(rows, budget)
    shuffled = np.random.default_rng(2).permutation(ROWS).tolist()
    _hits(cached, rows, range(ROWS), "The first epoch")
    for name, order in {"in order": range(ROWS), "shuffled": shuffled}.items():
        hits = _hits(cached, rows, order, f"An epoch {name}")
        expect(
            hits <= fits,
            f"The budget of {budget:,} bytes has room for {fits} of {ROWS} samples of "
            f"{rows.sample_bytes:,} bytes; {hits} came without a request. More is kept than that.",
            "Count bytes, not samples: budget // sample.nbytes, rounded down, may be 0.",
        )
        expect(
            hits > 0 or fits == 0,
            f"The budget has room for {fits} of {ROWS} samples, and in an epoch {name} none comes "
            "without a request: to make room you throw out the sample that is needed next. "
            "Cut to less than the data, such a cache is worth nothing.",
            "Never throw out: what was kept first stays, and when the room is used up nothing "
            "more is kept.",
        )
        expect(
            hits == fits,
            f"The budget has room for {fits} of {ROWS} samples, and in an epoch {name} only {hits} "
            "come without a request: room is unused, or something was thrown out.",
            "Room for budget // sample.nbytes samples; what is kept stays.",
        )
    held = nbytes(vars(cached))
    expect(
        held <= budget + 2 * rows.sample_bytes + 32 * ROWS,  # one for its shape, and notes
        f"The budget is {budget:,} bytes, and the tensors of your cache take {held:,}: memory is "
        "taken when a tensor is made, used or not.",
        "Make room for budget // sample.nbytes samples, and for no more.",
    )


def _judge_room(make: Make, rows: Rows) -> None:
    cached = make(rows, 2 * ROWS * rows.sample_bytes)
    expect(
        nbytes(vars(cached)) < 1.5 * ROWS * rows.sample_bytes,
        f"The budget has room for twice the {ROWS} samples there are, and your cache takes it all.",
        "No more places than samples: min(len(dataset), budget // sample.nbytes).",
    )


def _judge_workers(make: Make, rows: Crowded, how: str) -> None:
    """Let two workers fill the cache, half of the samples each."""
    fits = ROWS // 2
    cached = make(rows, fits * rows.sample_bytes)
    slowly = Slowly(cached)
    try:
        list(loader(slowly, batch_size=ROWS // 2, multiprocessing_context=how))
    except (RuntimeError, TypeError, pickle.PicklingError) as error:
        if re.search("timed out|BrokenBarrier", str(error)) and not slowly.met.is_set():
            too_busy()
        expect(
            not re.search("pickle|semlock", str(error).lower()),
            f"Workers started by {how} get a pickled copy of the dataset, and there can be none "
            f"of yours ({error}). Only a fork inherits such things.",
            "Keep tensors with .share_memory_(): they reach any worker. So does a lock of "
            'multiprocessing.get_context("spawn").',
        )
        raise
    where = f"After two workers, started by {how}, have filled the cache, an epoch in the notebook"
    hits = _hits(cached, rows, range(ROWS), where)
    expect(
        hits > 1,
        f"Two workers, started by {how}, ran an epoch, and what they kept is gone: each wrote into "
        "a copy of its own. Pickling for a worker shares a tensor by itself, but fork pickles "
        "nothing.",
        "Keep samples and notes in tensors that all processes see: "
        "torch.zeros(...).share_memory_(), made in __init__.",
    )
    expect(
        hits == fits,
        f"Two workers, started by {how}, filled a cache with room for {fits} samples at the same "
        f"moment; {hits} are there. A number that workers change, such as the next free place, is "
        "a copy in each of them, or both took the same place: a lock that each makes for itself "
        "locks nobody else out.",
        "Give each sample a place that needs no agreement: sample i lies at place i, and what "
        "has no place is not kept.",
    )


def _judge_second(make: Make, rows: Rows) -> None:
    """Let one reader fill the cache, and another ask for the same sample between two lines."""
    cached = make(rows, ROWS * rows.sample_bytes)
    for line, index in zip(LINES, range(ROWS)[-len(LINES) :], strict=True):
        expect(
            all(torch.equal(one, rows.values[index]) for one in _asked_before(line, cached, index)),
            "One reader puts a sample into the cache, another asks for it a moment too early, and "
            "gets something else: it was noted as there before it was.",
            "Write the sample first, and only then that it is there.",
        )


def _asked_before(line: int, cached: Any, index: int) -> list[torch.Tensor]:
    """Return what a second reader gets, who asks before that line of the first."""
    file, left = sys.modules[type(cached).__module__].__file__, iter(range(line))
    got: list[torch.Tensor] = []
    second = threading.Thread(target=lambda: got.append(cached[index]))

    def look(frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename != file:
            return None
        if event == "line" and next(left, None) is None and not second.ident:
            second.start()
            second.join(WAIT_S)
        return look

    def read() -> None:
        sys.settrace(look)
        cached[index]

    first = threading.Thread(target=read)
    first.start()
    first.join()
    if second.ident:
        second.join()
    return got


def _hits(cached: Any, rows: Rows, order: Iterable[int], where: str) -> int:
    """Run an epoch whose samples are to be right; return how many came without a request."""
    before = rows.requests
    for index in order:
        sample = cached[index]
        expect(
            isinstance(sample, torch.Tensor),
            f"cached[{index}] is {type(sample).__name__}; the dataset gives a tensor.",
            "Return what the dataset gives.",
        )
        wanted = rows.values[index]
        expect(
            sample.dtype == wanted.dtype,
            f"{where} serves {sample.dtype}, and the dataset has {wanted.dtype}: a tensor made "
            "without a dtype is float32, and large whole numbers lose digits in it.",
            "Make the room like a sample: torch.zeros(places, *first.shape, dtype=first.dtype).",
        )
        expect(
            torch.equal(sample, wanted),
            f"{where} serves another sample for index {index} than the dataset does. Two samples "
            "share a place, numbers were rounded, or one is handed out before it is there.",
            "Sample i has its own place; write the sample first, and then that it is there.",
        )
    return ROWS - (rows.requests - before)
