"""Exercise 07.2: a cache that never evicts. The check counts the requests it saves."""

import multiprocessing
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from course_utils.exercises.judging import loader
from course_utils.exercises.judging.compare import compare
from course_utils.exercises.judging.probes import expect_as_fast
from course_utils.teaching.exercise import Verdict, exercise, expect, expect_in_a_file, right
from course_utils.teaching.notebook import loaded_context

ROWS = 60
KINDS = (  # shape and dtype of the samples
    ((256,), torch.int64),
    ((16, 40), torch.int16),
    ((9, 9), torch.bfloat16),
    ((64,), torch.bool),
)
SCALES = {torch.int64: 2**62, torch.int16: 2**15 - 1, torch.bool: 2}  # above 2^24, float32 rounds
BUDGETS = (2, 24.7 / ROWS, 0, 0.7 / ROWS)  # in data sets
VALUES = [0, -1, -9, -99, -999, -9999]  # samples of one value, none of which may mean "not cached"
ORDERS = [np.random.default_rng(seed).permutation(ROWS).tolist() for seed in range(3)]

_SHARED = (
    "Create tensors in __init__ with torch.zeros(...).share_memory_(), and store sample i at "
    "place i. A lock must come from multiprocessing.get_context('spawn')."
)


class Rows(Dataset[Tensor]):
    """Samples of a dataset that counts the requests of all processes together."""

    def __init__(self, shape: tuple[int, ...] = (256,), dtype: torch.dtype = torch.int64):
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


class Slow(Tensor):
    """A sample that waits before each operation, so that another worker gets in its way."""

    @classmethod
    def __torch_function__(cls, *call: Any, **how: Any) -> Any:
        time.sleep(0.002)
        return super().__torch_function__(*call, **how)  # type: ignore[no-untyped-call]


class SlowRows(Rows):
    """Rows whose samples are slow."""

    def __getitem__(self, index: int) -> Tensor:
        return super().__getitem__(index).as_subclass(Slow)


class InStep(Dataset[Tensor]):
    """A learner's dataset whose two workers begin each sample at the same time."""

    def __init__(self, cached: Any):
        """Create the barrier at which each sample begins, which any worker can receive."""
        self._cached, self._gate = cached, multiprocessing.get_context("spawn").Barrier(2)

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> Tensor:
        self._gate.wait(60)
        return self._cached[index].as_subclass(Tensor)  # type: ignore[no-any-return]


@exercise("07.2", title="A cache that never evicts", seconds=90)
def never_evict(cached_class: type[Any]) -> Verdict:
    """Check a wrapper `Cached(dataset, budget)`: what it saves, keeps, and shares with workers."""
    for number, kind in enumerate(KINDS):
        for share in BUDGETS[: 2 if number else None]:
            _check_epochs(cached_class, Rows(*kind), share)
    _check_accidents(cached_class)
    expect_in_a_file(cached_class)
    if sys.platform == "linux":  # elsewhere a fork may end a program
        _check_workers(cached_class, "fork")
    _check_workers(cached_class, loaded_context())  # pickling also shares tensors
    return right(
        "Samples that fit are read once and never again, in the notebook and in workers. The share "
        "of hits is the share that fits."
    )


def _epoch(cached: Any, rows: Rows, order: Iterable[int]) -> int:
    """Run an epoch, check its samples, and return the number of requests."""
    before = int(rows.counts.sum())
    compare(cached.__getitem__, rows.values.__getitem__, order, show="sample {}".format)
    return int(rows.counts.sum()) - before


def _check_epochs(make: type[Any], rows: Rows, share: float) -> None:
    """Check three shuffled epochs, with a budget for this share of the samples."""
    budget = int(share * ROWS * rows.sample_bytes)
    fits = min(ROWS, budget // rows.sample_bytes)
    cached = make(rows, budget)
    held = sum(value.nbytes for value in vars(cached).values() if isinstance(value, Tensor))
    expect(
        held <= (fits + 1) * rows.sample_bytes + 16 * ROWS,  # a sample for the shape, and notes
        f"With a budget of {budget:,} bytes for {ROWS} samples of {rows.sample_bytes:,} bytes, the "
        f"cache holds {held:,} bytes.",
        "Create space for min(len(dataset), budget // sample.nbytes) samples only.",
    )
    before = int(rows.counts.sum())  # the class may read a sample to learn its shape, or fill
    compare(lambda _: len(cached), lambda _: ROWS, ["len(cached)"])
    first, *later = (_epoch(cached, rows, order) for order in ORDERS)
    expect(
        ROWS <= first + before < 1.2 * ROWS,
        f"The first epoch makes {first + before} requests for {ROWS} samples.",
        "Read each sample once, store it, and return what was read.",
    )
    for requests in later:
        expect(
            requests == ROWS - fits,
            f"The budget has space for {fits} of {ROWS} samples of {rows.sample_bytes:,} bytes. In "
            f"a later epoch, {ROWS - requests} came without a request.",
            "Never evict, and create space for budget // sample.nbytes samples. A tensor of "
            "torch.bool records which samples are cached.",
        )
    if share > 1:
        expect_as_fast(
            lambda: [cached[index] for index in range(ROWS)],
            lambda: [rows[index] for index in range(ROWS)],
        )


def _check_accidents(make: type[Any]) -> None:
    """Change samples in place, as an augmentation may, and let reads fail."""
    rows = Rows()
    cached = make(rows, ROWS * rows.sample_bytes)
    for _ in range(2):
        cached[3].zero_()
        expect(
            cached[3].any(),
            "A sample was changed in place after it was returned, and the cache now returns the "
            "changed sample, because it returned its own memory.",
            "Return a copy: self.kept[index].clone().",
        )
    for failures in 1_000, 1, 0:
        rows.failures = failures
        with suppress(OSError):
            compare(cached.__getitem__, rows.values.__getitem__, [5], show="sample {}".format)
        expect(
            rows.failures or failures <= 1,
            "A read fails again and again, and the cache never gives up. A missing file would "
            "block the training.",
            "Let the OSError through, or retry a few times.",
        )


def _check_workers(make: type[Any], how: Any) -> None:
    """Let two workers fill the cache in a shuffled first epoch."""
    rows, fits = SlowRows(), ROWS // 2
    cached, order = make(rows, fits * rows.sample_bytes), ORDERS[0]
    served = loader(InStep(cached), batch_size=6, sampler=order, multiprocessing_context=how)
    got = torch.stack([sample for batch in served for sample in batch])
    hits = ROWS - _epoch(cached, rows, ORDERS[1])
    expect(
        torch.equal(got, rows.values[order]) and hits == fits,
        f"Two workers filled a cache with space for {fits} samples. "
        f"{int((got != rows.values[order]).any(1).sum())} samples were wrong, and {hits} are there "
        "afterwards. Each wrote into its own copy, or both used the same place.",
        _SHARED,
    )
