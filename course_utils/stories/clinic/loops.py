"""The training loops of the blind clinic, which are slow for different reasons.

A `LoopRecipe` defines the times of each loop. All six use the same dataset, the same emulated
storage and the same emulated GPU, so only a recorded epoch can distinguish them.
"""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, Self

import psutil
import torch
from filelock import FileLock
from torch.utils.data import DataLoader, Dataset

from course_utils.hardware.gpu import EmulatedAccelerator, get_accelerator
from course_utils.hardware.machine import usable_cores
from course_utils.hardware.storage import UNLIMITED, SlowFileSystem, slow_storage
from course_utils.teaching.explorer import use_cpu
from keepfed.measure.records import Fetch
from keepfed.measure.trace import Trace, record

CAUSES = ("storage", "cpu", "giant sample", "one core", "sync", "gpu")
BATCH_SIZE, STEPS, WORKERS = 8, 24, 2
GIANT_EVERY = 7 * BATCH_SIZE  # period of giant samples, odd in batches so that workers share them
PREFETCHED = 2 * WORKERS + 1  # first batches, which are not typical of a long run
FILE = "samples.bin"

Batch = dict[str, torch.Tensor]


@dataclass(frozen=True)
class LoopRecipe:
    """The times of a loop, in milliseconds.

    All loops take about 80 ms per step, so the speed does not reveal the cause.
    """

    read: float = 1  # reading time per sample
    compute: float = 1  # CPU time per sample
    giant: float = 0  # CPU time of one sample in `GIANT_EVERY`
    one_core: bool = False
    kernels: int = 1  # kernels per step, which the loop waits for one at a time
    kernel: float = 25
    host: float = 0  # CPU time of the main process before each kernel
    step: float = 80  # step time of the loop on an otherwise idle machine

    def scaled(self, factor: float) -> Self:
        """Return the same loop with all its times multiplied."""
        times = ("read", "compute", "giant", "kernel", "host", "step")
        return replace(self, **{name: factor * getattr(self, name) for name in times})


SLACK = 0.75  # share of the expected speed below which a loop counts as disturbed
RECIPES = {
    "storage": LoopRecipe(read=19),
    "cpu": LoopRecipe(compute=19),
    "giant sample": LoopRecipe(giant=500),
    "one core": LoopRecipe(compute=9.5, one_core=True),
    "sync": LoopRecipe(kernels=4, kernel=10, host=10),
    "gpu": LoopRecipe(kernel=80),
}


class Samples(Dataset[Batch]):
    """Samples with a given cost, which contain their index and the number of usable cores."""

    def __init__(self, numbers: LoopRecipe, storage: SlowFileSystem, gate: str):
        self._numbers, self._storage, self._gate = numbers, storage, gate

    def __len__(self) -> int:
        return BATCH_SIZE * STEPS

    def __getitem__(self, index: int) -> Batch:
        """Return the sample's index and the cores of this process, both of shape ()."""
        numbers = self._numbers
        with self._storage.open(FILE) as file:
            file.seek(index)
            file.read(1)
        giant = numbers.giant if index % GIANT_EVERY == GIANT_EVERY // 2 else 0.0
        if numbers.one_core and not _can_pin():
            with FileLock(self._gate):
                use_cpu(numbers.compute)
        else:
            use_cpu(numbers.compute + giant)
        return {"sample": torch.tensor(index), "cores": torch.tensor(_cores())}


def _pin(recipe: LoopRecipe, worker: int) -> None:
    """Pin every worker to the same core if the recipe asks for it, like a faulty launcher."""
    if recipe.one_core and _can_pin():
        process = psutil.Process()
        process.cpu_affinity(process.cpu_affinity()[:1])


def _can_pin() -> bool:
    return hasattr(psutil.Process, "cpu_affinity")  # missing on macOS


def _cores() -> int:
    """Return the number of cores that this process may use, or -1 if it is unknown."""
    return len(psutil.Process().cpu_affinity()) if _can_pin() else -1


class Loop(NamedTuple):
    """A training loop and the cause of its slowness."""

    cause: str
    recipe: LoopRecipe
    loader: DataLoader[Batch]
    gpu: EmulatedAccelerator

    def step(self, batch: Batch) -> None:
        """Launch the kernels of a step, and wait for the end of each."""
        on_gpu = self.gpu.upload(batch["sample"])
        for _ in range(self.recipe.kernels):
            use_cpu(self.recipe.host)
            self.gpu.step(on_gpu, ms=self.recipe.kernel).item()


def make_loops(folder: Path, seed: int) -> Iterator[Loop]:
    """Yield the loops in the order given by `seed`; they read from `folder`."""
    rng = random.Random(seed)
    if not (folder / FILE).exists():
        (folder / FILE).write_bytes(bytes(BATCH_SIZE * STEPS))
    for number, cause in enumerate(rng.sample(CAUSES, len(CAUSES))):
        recipe = RECIPES[cause].scaled(rng.uniform(0.9, 1.1))
        limits = replace(UNLIMITED, request_ms=recipe.read, requests_at_once=WORKERS)
        storage = slow_storage(folder, limits)
        loader: DataLoader[Batch] = DataLoader(
            Samples(recipe, storage, str(folder / f"{number}.lock")),
            batch_size=BATCH_SIZE,
            num_workers=WORKERS,
            worker_init_fn=partial(_pin, recipe),
        )
        gpu = get_accelerator(emulate=True)  # even with a real GPU, as its times must be known
        assert isinstance(gpu, EmulatedAccelerator)
        yield Loop(cause, recipe, loader, gpu)


class ClinicRun:
    """One recorded epoch of a loop: its steps, and the cost of each batch."""

    def __init__(self, loop: Loop, batches: Iterable[Batch] | None = None, *, fetch: bool = False):
        """Run the loop, on other `batches` if given, and without steps if `fetch` is true."""
        self.cores = -1  # cores that each worker may use, or -1 if unknown
        self.ends_ns: list[int] = []
        with record() as trace:
            for batch in trace.batches(batches or loop.loader, ids="sample"):
                if not fetch:
                    loop.step(batch)
                self.cores = max(self.cores, *batch["cores"].tolist())
                self.ends_ns.append(trace.clock())
            if not fetch:
                loop.gpu.synchronize()
        self.trace: Trace = trace
        recipe = loop.recipe
        alone_ms = recipe.kernels * (recipe.kernel + recipe.host)
        step_ms = recipe.step if batches is None else alone_ms
        # slowed down by other programs, which is not detectable with a single core
        self.disturbed = usable_cores() > 1 and self.per_s() * step_ms < 1e3 * SLACK

    def per_s(self) -> float:
        """Return the steps or batches per second, without those that were prefetched."""
        ends = self.ends_ns[PREFETCHED:]
        return (len(ends) - 1) / (ends[-1] - ends[0]) * 1e9

    def gpu_busy(self) -> float:
        """Return the busy share of the GPU, without the prefetched batches."""
        start, end = self.ends_ns[PREFETCHED], self.ends_ns[-1]
        steps = (span for span in self.trace.spans if span.stage == "compute")
        inside = (min(span.end_ns, end) - max(span.start_ns, start) for span in steps)
        return sum(max(ns, 0) for ns in inside) / (end - start)

    def by_worker(self) -> list[list[Fetch]]:
        """Return the fetches of each worker, in order."""
        fetches = sorted(self.trace.fetches)
        return [list(group) for _, group in groupby(fetches, key=lambda fetch: fetch.worker)]
