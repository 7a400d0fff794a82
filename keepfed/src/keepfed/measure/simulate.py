"""Predict the trace of a training loop from the times of its stages.

The module is a discrete-event model of a `DataLoader`, its workers and a device. It returns a
`Trace`, as a measured run does, so you can draw and summarize both in the same way.

    simulate(Pipeline(read_ms=60, decode_ms=20, step_ms=50, num_workers=2)).summary()
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, fields
from heapq import heappop, heappush
from itertools import count

import numpy as np

from keepfed.measure.spans import Span
from keepfed.measure.trace import Trace

CPU_STAGES = ("decode", "transform", "collate")


class _Clock:
    """Simulated time in ms, and the processes that wait for a time.

    A process is a generator. It yields the ms to wait, or the tokens of which it takes one.
    """

    def __init__(self) -> None:
        self.now, self._order = 0.0, count()
        self._queue: list[tuple[float, int, _Process]] = []

    def resume(self, process: _Process, after_ms: float = 0.0) -> None:
        """Continue a process later, in the order of the calls if the times are equal."""
        heappush(self._queue, (self.now + after_ms, next(self._order), process))

    def run(self) -> None:
        while self._queue:
            self.now, _, process = heappop(self._queue)
            wanted = next(process, None)
            if isinstance(wanted, _Tokens):
                wanted.take(process)
            elif wanted is not None:
                self.resume(process, wanted)


class _Tokens:
    """A counting semaphore: processes take a token, in the order in which they ask."""

    def __init__(self, clock: _Clock, free: int = 0):
        self._clock, self._free, self._waiting = clock, free, deque[_Process]()

    def take(self, process: _Process) -> None:
        if self._free:
            self._free -= 1
            self._clock.resume(process)
        else:
            self._waiting.append(process)

    def give(self) -> None:
        if self._waiting:
            self._clock.resume(self._waiting.popleft())
        else:
            self._free += 1


_Process = Generator[float | _Tokens, None, None]


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """Parameters of a simulated training loop; times are in milliseconds per batch.

    One worker needs L = read + decode + transform + collate for a batch. A step takes C.
    """

    read_ms: float = 0.0
    decode_ms: float = 0.0
    transform_ms: float = 0.0
    collate_ms: float = 0.0
    copy_ms: float = 0.0
    step_ms: float = 50.0
    steps: int = 40
    batch_size: int = 64
    num_workers: int = 0
    prefetch_factor: int = 2
    cores: int | None = None  # maximum number of batches in CPU stages at the same time
    storage_streams: int | None = None  # maximum number of batches being read at the same time
    jitter: float = 0.0  # standard deviation of a stage's time, divided by its mean
    pinned: bool = False  # a copy from pinned memory does not block the main process
    overlap: bool = False  # copies run on a separate stream, one batch ahead of the step
    sync: bool = True  # the loop reads the loss after every step, so it waits for the step to end
    start_up_ms: float = 0.0  # time until the workers are running
    host_ms: float = 0.0  # time of the main process to receive a batch and launch its step
    seed: int = 0

    def __post_init__(self) -> None:
        """Reject values that are out of range."""
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, (int, float)) and value < 0:
                raise ValueError(f"`{field.name}` must be at least 0, but is {value}.")
        if 0 in (self.steps, self.prefetch_factor, self.cores, self.storage_streams):
            raise ValueError(
                "`steps`, `prefetch_factor`, `cores` and `storage_streams` must be at least 1."
            )

    @property
    def load_ms(self) -> float:
        """Time that one worker needs to load a batch, called L."""
        return self.read_ms + self.decode_ms + self.transform_ms + self.collate_ms


def simulate(pipeline: Pipeline) -> Trace:
    """Simulate `pipeline` and return its trace, which begins at time 0."""
    return _Model(pipeline).run()


class _Model:
    """Simulation of one pipeline: workers, main process, copy engine and GPU."""

    def __init__(self, pipeline: Pipeline):
        self.pipeline = p = pipeline
        self.clock = clock = _Clock()
        self.trace = Trace(clock=lambda: _ns(clock.now))
        self.trace.note = "simulated"
        self.storage = _Tokens(clock, p.storage_streams or sys.maxsize)
        self.cpu = _Tokens(clock, p.cores or sys.maxsize)
        self.requested = [_Tokens(clock) for _ in range(p.steps)]
        self.ready = [_Tokens(clock) for _ in range(p.steps)]
        self.copy_free = self.gpu_free = 0.0  # time in ms at which the engine finishes its queue
        self.factors = _factors(p)

    def run(self) -> Trace:
        p = self.pipeline
        for worker in range(min(p.num_workers, p.steps)):
            self.clock.resume(self._worker(worker))
        self.clock.resume(self._main_overlapped() if p.overlap else self._main_serial())
        self.clock.run()
        self.trace.end_ns = _ns(self.gpu_free)
        return self.trace

    def _load(self, batch: int, lane: str) -> _Process:
        p = self.pipeline
        for stage in ("read", *CPU_STAGES):
            if duration := float(getattr(p, f"{stage}_ms") * self.factors[stage][batch]):
                resource = self.cpu if stage in CPU_STAGES else self.storage
                yield resource
                start = self.clock.now
                yield duration
                self._add(lane, stage, start, self.clock.now, batch)
                resource.give()

    def _worker(self, worker: int) -> _Process:
        yield self.pipeline.start_up_ms
        for batch in range(worker, self.pipeline.steps, self.pipeline.num_workers):
            yield self.requested[batch]
            yield from self._load(batch, f"worker {worker}")
            self.ready[batch].give()

    def _next(self, batch: int) -> _Process:
        """Simulate `next(loader)`: load the batch, or wait for a worker and send new tasks."""
        p, start = self.pipeline, self.clock.now
        if p.num_workers == 0:
            yield from self._load(batch, "main")
        else:
            ahead = p.num_workers * p.prefetch_factor
            if batch == 0:
                for task in self.requested[:ahead]:
                    task.give()
            yield self.ready[batch]
            if batch + ahead < p.steps:
                self.requested[batch + ahead].give()
        yield p.host_ms
        self._add("main", "wait", start, self.clock.now, batch)
        served = range(batch * p.batch_size, (batch + 1) * p.batch_size)
        self.trace.serve(p.batch_size, served)
        self.trace.served += 1

    def _main_serial(self) -> _Process:
        for batch in range(self.pipeline.steps):
            yield from self._next(batch)
            # The copy waits for the previous step, because both run on the same stream.
            copied = self._copy(batch, self.gpu_free)
            if not self.pipeline.pinned:
                yield copied - self.clock.now
            yield from self._step(batch, copied)

    def _main_overlapped(self) -> _Process:
        copied: list[float] = []
        for batch in range(self.pipeline.steps):
            yield from self._next(batch)
            copied.append(self._copy(batch, 0.0))
            if batch > 0:
                yield from self._step(batch - 1, copied[batch - 1])
        yield from self._step(self.pipeline.steps - 1, copied[-1])

    def _copy(self, batch: int, not_before: float) -> float:
        start = max(self.clock.now, self.copy_free, not_before)
        self.copy_free = start + self.pipeline.copy_ms
        self._add("copy", "transfer", start, self.copy_free, batch)
        return self.copy_free

    def _step(self, batch: int, copied: float) -> _Process:
        start = max(self.clock.now, self.gpu_free, copied)
        self.gpu_free = start + self.pipeline.step_ms
        self._add("gpu", "compute", start, self.gpu_free, batch)
        if self.pipeline.sync:
            yield self.gpu_free - self.clock.now

    def _add(self, lane: str, stage: str, start_ms: float, end_ms: float, batch: int) -> None:
        if end_ms > start_ms:
            self.trace.add(Span(lane, stage, _ns(start_ms), _ns(end_ms), batch))


def _factors(pipeline: Pipeline) -> dict[str, np.ndarray]:
    """Return for each stage the time of every batch, relative to the mean.

    The factors are gamma-distributed, so they are never negative.
    """
    rng, stages = np.random.default_rng(pipeline.seed), ("read", *CPU_STAGES)
    if pipeline.jitter == 0:
        return {stage: np.ones(pipeline.steps) for stage in stages}
    shape = pipeline.jitter**-2
    return {stage: rng.gamma(shape, 1 / shape, pipeline.steps) for stage in stages}


def _ns(ms: float) -> int:
    return round(ms * 1e6)
