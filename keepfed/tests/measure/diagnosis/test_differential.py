import multiprocessing
import os
import random
import time
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from torch.utils.data import DataLoader

from keepfed.errors import KeepfedError
from keepfed.measure.diagnosis import Diagnosis, diagnose, runs
from keepfed.measure.diagnosis.loop import preserved
from keepfed.measure.hook import end
from tests.fixtures import run_python
from tests.measure import datasets as data
from tests.measure.diagnosis import parallel_kernels

HELPERS = ("multiprocessing.forkserver", "multiprocessing.resource_tracker")
ROWS = data.KINDS["map-style"]


@pytest.fixture(autouse=True)
def _no_process_is_left() -> Iterator[None]:
    """Fail a test that leaves a process, apart from the helpers of multiprocessing."""
    before = psutil.Process().children()
    yield
    new = [child for child in psutil.Process().children() if child not in before]
    commands = [" ".join(child.cmdline()) for child in new]
    assert not [line for line in commands if not any(helper in line for helper in HELPERS)]


def quick(loader: Any, step: Any = lambda batch: torch.zeros(()), **options: Any) -> Diagnosis:
    return diagnose(loader, step, **{"seconds": 0.2, **options})


@pytest.mark.slow
def test_diagnose_restores_every_kind_of_loader() -> None:
    for kind, workers in (*product(data.KINDS, [0]), *product(list(data.KINDS)[:4], [1])):
        loader = data.KINDS[kind](num_workers=workers)
        before = dict(getattr(loader, "__dict__", {}))
        found = quick(loader, seconds=1 if workers else 0.2).measurements
        assert found.paces.loader_s > 0, kind
        assert found.setting.workers == workers, kind
        samples = data.BATCH if kind == "without batching" else 1
        if kind != "iterable":  # the length of a stream is known only after an epoch
            assert found.paces.epoch == data.BATCHES * samples, kind
        assert dict(getattr(loader, "__dict__", {})) == before, kind


def test_errors_are_raised_and_the_loader_is_restored() -> None:
    for workers, error in ((0, ValueError), (1, KeyboardInterrupt)):

        def step(batch: Any, error: type[BaseException] = error) -> None:
            raise error("of the step")

        loader = data.KINDS["persistent"](num_workers=workers)
        before = dict(vars(loader))
        with pytest.raises(error, match="of the step"):
            quick(loader, step, seconds=1)
        assert vars(loader) == before, workers
        with pytest.raises(LookupError, match="sample 5 is corrupt"):
            quick(DataLoader(data.Broken(), 8, num_workers=workers))


def test_unsuitable_loader_or_step_raises_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    cases: list[tuple[Any, Any, str]] = [
        (iter([torch.zeros(4)]), print, "instead of `iter"),
        (3, print, "`loader` has type int, which cannot be iterated several times"),
        ([], print, "yields no batch"),
        ([torch.zeros(4)], print, "too short for a diagnosis"),
        ([ROWS(), ROWS()], print, "joins 2 DataLoaders"),
        ([torch.zeros(4)] * 9, "step", "`step` has type str, but must be a function"),
        (DataLoader(data.Deadly(), 8, num_workers=1), print, "num_workers=0` to see the reason"),
    ]
    for loader, step, says in cases:
        with pytest.raises(KeepfedError, match=says):
            quick(loader, step, seconds=0.5)
    with pytest.raises(KeepfedError, match="must be greater than 0, but is -1"):
        quick(ROWS(), seconds=-1)
    monkeypatch.setattr(runs, "GRACE_S", 0.0)
    with pytest.raises(KeepfedError, match="too few for a diagnosis"):
        quick(ROWS(), seconds=1e-9)


class Wrapped:
    """A loader that passes on the batches of a `DataLoader`, like webdataset's WebLoader."""

    def __init__(self, loader: DataLoader[Any]):
        self.stages = [loader]

    def __iter__(self) -> Iterator[Any]:
        yield from self.stages[0]


def test_diagnose_finds_the_workers_of_a_wrapped_loader() -> None:
    wrapped = Wrapped(ROWS(num_workers=1))
    before = dict(vars(wrapped.stages[0]))
    found = quick(wrapped, prove=True).measurements
    assert (found.setting.workers, found.setting.kind) == (1, "samples")
    assert vars(wrapped.stages[0]) == before


def test_running_persistent_workers_survive_a_diagnosis() -> None:
    loader = DataLoader(data.Numbers(40), num_workers=1, persistent_workers=True)
    list(loader)
    theirs, before = loader._iterator, dict(vars(loader))
    with preserved(loader):
        assert (loader._iterator, loader.timeout) == (None, 60)
        list(loader)
        assert len(multiprocessing.active_children()) == 2
    assert vars(loader) == before
    assert len(multiprocessing.active_children()) == 1
    assert len(list(loader)) == 40
    assert loader._iterator is theirs
    end(theirs, orderly=False)


def test_diagnose_does_not_change_the_random_numbers() -> None:
    generator = torch.Generator()
    loader = DataLoader(data.Numbers(40), shuffle=True, generator=generator)

    def seed() -> None:
        for start in (torch.manual_seed, np.random.seed, random.seed, generator.manual_seed):
            start(1)

    def draw() -> list[float]:
        order = [float(batch) for batch in loader]
        return [*order, float(torch.rand(())), float(np.random.rand()), random.random()]

    seed()
    expected = draw()
    seed()
    with preserved(loader):
        draw()
    assert draw() == expected


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_multi_threaded_workers_do_not_hang() -> None:
    run = run_python(parallel_kernels.__file__, timeout=60)
    assert (run.stdout, run.returncode) == ("1\n", 0), run.stderr


class Endless:
    """A sampler that repeats another one."""

    def __init__(self, sampler: Any):
        self.sampler = sampler

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield from self.sampler


class KeepsIterator(DataLoader[Any]):
    """A loader that makes its only iterator in `__init__`, as in ultralytics and timm."""

    def __init__(self, batch_size: int | None, **options: Any):
        super().__init__(data.Numbers(320), batch_size, **options)
        self.endless = Endless(self.batch_sampler or self.sampler)
        vars(self)["batch_sampler" if batch_size else "sampler"] = self.endless
        self.iterator = super().__iter__()

    def __len__(self) -> int:
        return len(self.endless.sampler)

    def __iter__(self) -> Any:
        for _ in range(len(self)):
            yield next(self.iterator)


def test_loader_that_keeps_its_iterator_is_diagnosed_or_refused() -> None:
    for batch_size, workers in ((8, 0), (8, 1), (None, 1)):
        loader = KeepsIterator(batch_size, num_workers=workers)
        before = dict(vars(loader))
        found = quick(loader, seconds=2).measurements
        assert (found.setting.workers, found.paces.epoch) == (workers, len(loader)), batch_size
        assert vars(loader) == before, batch_size
        assert len(list(loader)) == len(loader), batch_size
        end(loader.iterator, orderly=False)
    with pytest.raises(KeepfedError, match="keeps an iterator that has ended"):
        quick(Ended())


class Ended:
    """A loader whose generator ends with StopIteration in the second epoch."""

    batches = map(torch.tensor, range(5))  # so few that each diagnosis needs another epoch

    def __iter__(self) -> Iterator[Any]:
        for _ in range(5):
            yield next(self.batches)


def test_diagnosis_keeps_its_time_if_workers_start_slowly() -> None:
    loader = DataLoader(data.Numbers(4000), 8, num_workers=2, worker_init_fn=start_slowly)
    begun = time.perf_counter()
    found = quick(loader, prove=True, seconds=4)
    assert time.perf_counter() - begun < 2 * 1.5 * 4
    assert found.measurements.paces.start_up_s > 0.8


def start_slowly(worker_id: int) -> None:
    time.sleep(1)
