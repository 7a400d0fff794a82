"""Exercise 07.2: a cache that never evicts. The check counts the requests it saves."""

import gc
import multiprocessing
import pickle
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from course_utils.exercises.judging import loader
from course_utils.exercises.judging.compare import compare
from course_utils.exercises.judging.probes import expect_as_fast, memory_of
from course_utils.teaching.exercise import (
    Verdict,
    exercise,
    expect,
    expect_in_a_file,
    right,
    too_busy,
)

ROWS = 60
KINDS = (  # shape and dtype of the samples
    ((256,), torch.int64),
    ((16, 40), torch.int16),
    ((50,), torch.float32),
    ((9, 9), torch.bfloat16),
    ((64,), torch.bool),
)
SCALES = {torch.int64: 2**62, torch.int16: 2**15 - 1, torch.bool: 2}  # above 2^24, float32 rounds
VALUES = [0, -1, -9, -99, -999, -9999]  # samples of one value, none of which may mean "not cached"

WAIT_FOR_WORKER_S = 60.0  # a worker starts late on a busy machine
LINE_S = 0.001  # for each line of the learner's code, so two workers get in each other's way
OPCODES = 7 * ROWS  # maximum number of instructions of the learner's code at which a pause is tried
WAIT_S = 0.03  # for a second reader, which may wait for a lock

Make = type[Any]
_SPAWN = multiprocessing.get_context("spawn")  # any worker can receive its locks
_KEEP = (
    "Never evict, and create space for budget // sample.nbytes samples. A tensor of torch.bool "
    "records which samples are cached."
)
_SHARED = (
    "Create tensors in __init__ with torch.zeros(...).share_memory_(), and store sample i at "
    "place i. A lock must come from multiprocessing.get_context('spawn')."
)


class Rows(Dataset[Tensor]):
    """Samples of a dataset that counts the requests for all processes together."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype):
        """Create the samples."""
        generator = torch.Generator().manual_seed(7)
        values = torch.rand(ROWS, *shape, generator=generator, dtype=torch.float64)
        self.values = (values * SCALES.get(dtype, 1)).to(dtype)
        for row, value in enumerate(VALUES, 7):
            self.values[row] = value
        self.sample_bytes = self.values[0].nbytes
        self.counts = torch.zeros(ROWS, dtype=torch.int64)
        self.counts.share_memory_()  # type: ignore[no-untyped-call]
        self.failures = 0  # number of the next reads of row 5 that fail

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> Tensor:
        row = range(ROWS)[index]
        if row == 5 and self.failures:
            self.failures -= 1
            raise OSError("the storage did not answer")
        self.counts[row] += 1
        return self.values[row].clone()

    @property
    def requests(self) -> int:
        """Reads so far."""
        return int(self.counts.sum())


class Slowly(Dataset[Tensor]):
    """A learner's dataset that two workers fill in step, line by line."""

    def __init__(self, cached: Any):
        """Create the barrier at which each sample begins."""
        self._cached, self._gate, self.met = cached, _SPAWN.Barrier(2), _SPAWN.Event()

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> Tensor:
        self._gate.wait(WAIT_FOR_WORKER_S)
        self.met.set()
        return _traced(self._cached, index, lambda: time.sleep(LINE_S), "line")


def _traced(cached: Any, index: int, pause: Callable[[], None], event: str) -> Tensor:
    """Return a sample, and call `pause` before each line or opcode of the learner's code."""
    file = sys.modules[type(cached).__module__].__file__

    def trace(frame: FrameType, what: str, _: object) -> Any:
        if frame.f_code.co_filename != file:
            return None
        frame.f_trace_opcodes = event == "opcode"
        if what == event:
            pause()
        return trace

    sys.settrace(trace)
    try:
        return cached[index]  # type: ignore[no-any-return]
    finally:
        sys.settrace(None)


@exercise("07.2", title="A cache that never evicts", seconds=90)
def never_evict(cached_class: Make) -> Verdict:
    """Check a wrapper `Cached(dataset, budget)`: what it saves, keeps, and shares with workers."""
    for kind in KINDS:
        rows = Rows(*kind)
        cached = _check_budget(cached_class, rows, 2 * ROWS * rows.sample_bytes)
        expect_as_fast(partial(_read, cached), partial(_read, rows))
        _check_accidents(cached_class, rows)
        for share in (24.7 / ROWS, 0.9, 0, 0.7 / ROWS):
            _check_budget(cached_class, rows, int(share * ROWS * rows.sample_bytes))
    _check_memory(cached_class, Rows((4096,), torch.int64))
    expect_in_a_file(cached_class)
    _check_second(cached_class, Rows(*KINDS[0]))
    ways = _start_methods()
    for how in ways:
        _check_workers(cached_class, Rows(*KINDS[0]), how)
    return right(
        "Samples that fit are read once and never again, in the notebook and in workers "
        f"started by {' and by '.join(ways)}. The share of hits is the share that fits."
    )


def _read(dataset: Any) -> list[Any]:
    return [dataset[index] for index in range(ROWS)]


def _start_methods() -> list[str]:
    """Return a start method that pickles the dataset, and `fork` if that is safe."""
    known = multiprocessing.get_all_start_methods()
    pickles = "forkserver" if "forkserver" in known else "spawn"
    return ["fork", pickles] if sys.platform == "linux" else [pickles]


def _check_budget(make: Make, rows: Rows, budget: int) -> Any:
    """Check three epochs with a budget, and return the cache."""
    fits = min(ROWS, budget // rows.sample_bytes)
    shuffled = np.random.default_rng(2).permutation(ROWS).tolist()
    before = rows.requests
    cached = make(rows, budget)
    compare(lambda _: len(cached), lambda _: ROWS, ["len(cached)"])
    _hits(cached, rows, range(ROWS))
    first = rows.requests - before
    expect(
        ROWS <= first < 1.2 * ROWS,  # the class may read a sample to learn its shape
        f"The first epoch makes {first} requests for {ROWS} samples.",
        "Read each sample once, store it, and return what was read.",
    )
    for order in range(ROWS), shuffled:
        hits = _hits(cached, rows, order)
        expect(
            hits == fits,
            f"The budget has space for {fits} of {ROWS} samples of {rows.sample_bytes:,} bytes. In "
            f"a later epoch, {hits} came without a request.",
            _KEEP,
        )
    return cached


def _check_memory(make: Make, rows: Rows) -> None:
    """Measure the memory of two full caches, in whatever object it is stored."""
    before, size = _tensor_bytes(), rows.sample_bytes
    budgets = 25 * size, 2 * ROWS * size
    caches, held, _ = memory_of(lambda: tuple(_filled(make(rows, one)) for one in budgets))
    held += _tensor_bytes() - before
    expect(
        held <= (25 + ROWS + 2 * len(caches)) * size + 40_000,  # samples for the shape, and notes
        f"A cache with a budget for 25 samples and one with a budget for twice the {ROWS} samples "
        f"of the dataset hold {held:,} bytes. A sample has {size:,}.",
        "Create space for min(len(dataset), budget // sample.nbytes) samples only.",
    )


def _filled(cached: Any) -> Any:
    _read(cached)
    return cached


def _tensor_bytes() -> int:
    """Return the bytes of all tensors of this process, including those in modules."""
    tensors = [one for one in gc.get_objects() if issubclass(type(one), Tensor)]
    storages = [t.untyped_storage() for t in tensors if t.layout == torch.strided]
    return sum({one.data_ptr(): one.nbytes() for one in storages if one.nbytes()}.values())


def _check_accidents(make: Make, rows: Rows) -> None:
    """Change samples in place, as an augmentation may, and let reads fail."""
    cached = make(rows, ROWS * rows.sample_bytes)
    for _ in range(2):
        cached[3].zero_()
        expect(
            cached[3].any(),
            "A sample was changed in place after it was returned, and the cache now returns the "
            "changed sample, because it returned its own memory.",
            "Return a copy: self.kept[index].clone().",
        )
    for failures in 1_000, 1:
        rows.failures = failures
        with suppress(OSError):
            compare(lambda _: cached[5], lambda _: rows.values[5], ["a sample whose read failed"])
        expect(
            rows.failures or failures == 1,
            "A read fails again and again, and the cache never gives up. A missing file would "
            "block the training.",
            "Let the OSError through, or retry a few times.",
        )
    rows.failures = 0
    compare(lambda _: cached[5], lambda _: rows.values[5], ["a sample whose read failed before"])


def _check_second(make: Make, rows: Rows) -> None:
    """Let one reader fill the cache, and another read the same sample between two instructions."""
    cached = [make(rows, ROWS * rows.sample_bytes) for _ in range(OPCODES // ROWS)]
    for number in range(OPCODES):
        index = number % ROWS
        got = _interrupted(number, cached[number // ROWS], index)
        expect(
            all(torch.equal(one, rows.values[index]) for one in got),
            "While one reader stores a sample, another reads it and gets something else. The "
            "sample was marked as cached before it was stored.",
            "Store the sample first. Mark it as cached on the next line.",
        )
        if len(got) < 2:  # the code has fewer instructions
            break


def _interrupted(number: int, cached: Any, index: int) -> list[Tensor]:
    """Start a second reader before this instruction of the first, and return what both get."""
    left, got = iter(range(number)), list[Tensor]()
    second = threading.Thread(target=lambda: got.append(cached[index]))

    def pause() -> None:
        if next(left, None) is None and not second.ident:
            second.start()
            second.join(WAIT_S)

    first = threading.Thread(target=lambda: got.append(_traced(cached, index, pause, "opcode")))
    first.start()
    first.join()
    if second.ident:
        second.join()
    return got


def _check_workers(make: Make, rows: Rows, how: str) -> None:
    """Let two workers fill the cache, half of the samples each."""
    fits = ROWS // 2
    cached = make(rows, fits * rows.sample_bytes)
    slowly = Slowly(cached)
    try:
        list(loader(slowly, batch_size=ROWS // 2, multiprocessing_context=how))
    except (RuntimeError, TypeError, AttributeError, NameError, pickle.PicklingError) as error:
        if re.search("timed out|BrokenBarrier", str(error)) and not slowly.met.is_set():
            too_busy()
        expect(
            not re.search("pickle|semlock|attributeerror|nameerror", f"{error!r}".lower()),
            f"A worker started by {how} gets a pickled copy of the instance. Attributes of the "
            f"class and some objects are missing there: {str(error).strip().splitlines()[-1]}",
            _SHARED,
        )
        raise
    hits = _hits(cached, rows, range(ROWS))
    expect(
        hits == fits,
        f"Two workers, started by {how}, filled a cache with space for {fits} samples. Only {hits} "
        "are there afterwards. Each wrote into its own copy, or both used the same place.",
        _SHARED,
    )


def _hits(cached: Any, rows: Rows, order: Iterable[int]) -> int:
    """Run an epoch, check its samples, and return how many came without a request."""
    before = rows.requests
    compare(lambda i: cached[i], lambda i: rows.values[i], order, show=lambda i: f"sample {i}")
    return ROWS - (rows.requests - before)
