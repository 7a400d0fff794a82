"""Note in every worker what each fetch cost it: time, processor, and waiting for one.

The figures go to memory that the workers share with the main process, so that they are there also
when a worker has ended. Time that a fetch neither computed nor waited for a core, it waited for
something else: storage, as a rule.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from threadpoolctl import threadpool_info, threadpool_limits
from torch.utils.data import DataLoader, get_worker_info
from torch.utils.data._utils import fetch as torch_fetch

from course_utils.measure.process import bytes_read, delay_s, own_bytes

ROWS = 2048  # fetches that are remembered of each worker
MEMORY_EVERY_S = 0.2
MEMORY_SHARE = 0.05  # of its time at most may a worker spend on weighing itself

_FETCHERS: Any = (torch_fetch._MapDatasetFetcher, torch_fetch._IterableDatasetFetcher)


class Reading(NamedTuple):
    """The clocks of one thread and its process, in seconds."""

    wall: float
    thread: float  # processor time of the thread that fetches
    process: float  # and of all threads
    delay: float  # time for which that thread was ready and got no core


class Fetch(NamedTuple):
    """What one fetch of one batch cost, in seconds; `collate` is its last part."""

    worker: float
    end: float
    wall: float
    cpu: float  # of the fetching thread
    process_cpu: float  # of the whole process: more than `cpu` if there are thread pools
    delay: float
    collate: float
    total_cpu: float  # of the process since it began
    asked_bytes: float  # that the process has read since it began, from whatever file
    disk_bytes: float  # and that had to come from a disk
    unique_bytes: float  # memory that only this process has, 0 if not weighed now
    pool_threads: float  # most threads that a pool of a numerical library may use


def read_clocks() -> Reading:
    """Read the clocks now; a system that does not tell how long threads wait tells 0."""
    return Reading(time.perf_counter(), time.thread_time(), time.process_time(), delay_s())


class Gauges:
    """Memory for the fetches of some workers; it may be sent to them in any way."""

    def __init__(self, workers: int):
        """Make room for `workers`; one without any is the main process itself."""
        self.rows = torch.zeros(max(workers, 1), ROWS, len(Fetch._fields), dtype=torch.float64)
        self.counts = torch.zeros(max(workers, 1), dtype=torch.int64)
        self.rows.share_memory_()  # type: ignore[no-untyped-call]
        self.counts.share_memory_()  # type: ignore[no-untyped-call]

    def note(self, fetch: Fetch) -> None:
        """Enter a fetch; the oldest are forgotten."""
        worker = int(fetch.worker)
        number = int(self.counts[worker])
        self.rows[worker, number % ROWS] = torch.tensor(fetch, dtype=torch.float64)
        self.counts[worker] = number + 1

    def fetches(self) -> list[Fetch]:
        """Return all that is remembered, in the order in which they ended."""
        found = [
            Fetch(*row)
            for rows, count in zip(self.rows, self.counts.tolist(), strict=True)
            for row in rows[: min(count, ROWS)].tolist()
        ]
        return sorted(found, key=lambda fetch: fetch.end)


class _State:
    """What this process remembers between two fetches."""

    started: Reading | None = None
    weighed_s = 0.0  # when memory is weighed again
    pool_threads = 0
    limits: threadpool_limits | None = None


_here = _State()


@contextmanager
def gauged(loader: DataLoader[Any], gauges: Gauges, *, one_thread: bool = False) -> Iterator[None]:
    """Make the workers that `loader` starts inside note their fetches.

    `one_thread` limits their thread pools to one thread, to see what difference that makes.
    """
    originals = loader.collate_fn, loader.worker_init_fn
    loader.collate_fn = _GaugedCollate(loader.collate_fn, gauges)
    fetches = [kind.fetch for kind in _FETCHERS]
    limits = None
    if loader.num_workers:
        loader.worker_init_fn = _GaugedInit(loader.worker_init_fn, one_thread)
    else:
        _here.__dict__.clear()
        _note_starts()
        limits = _one_thread() if one_thread else None
    try:
        yield
    finally:
        loader.collate_fn, loader.worker_init_fn = originals
        for kind, fetch in zip(_FETCHERS, fetches, strict=True):
            kind.fetch = fetch
        if limits is not None:
            limits()


def _one_thread() -> Callable[[], None]:
    """Limit the thread pools of this process; return how to undo it."""
    threads, limits = torch.get_num_threads(), threadpool_limits(1)
    torch.set_num_threads(1)

    def undo() -> None:
        limits.restore_original_limits()
        torch.set_num_threads(threads)

    return undo


class _GaugedCollate:
    """Collate as before, and note what the fetch cost that ends so."""

    def __init__(self, original: Callable[[Any], Any], gauges: Gauges):
        self.original, self.gauges = original, gauges

    def __call__(self, samples: Any) -> Any:
        made = read_clocks()
        batch = self.original(samples)
        self._note(_here.started or made, made, read_clocks())
        _here.started = None
        return batch

    def _note(self, started: Reading, made: Reading, ended: Reading) -> None:
        info = get_worker_info()
        worker = info.id if info else 0
        if not _here.pool_threads or self.gauges.counts[worker] == 2:  # libraries load lazily
            _here.pool_threads = max((pool["num_threads"] for pool in threadpool_info()), default=1)
        asked, from_disk = bytes_read()
        self.gauges.note(
            Fetch(
                worker=worker,
                end=ended.wall,
                wall=ended.wall - started.wall,
                cpu=ended.thread - started.thread,
                process_cpu=ended.process - started.process,
                delay=ended.delay - started.delay,
                collate=ended.wall - made.wall,
                total_cpu=ended.process,
                asked_bytes=asked,
                disk_bytes=from_disk,
                unique_bytes=_weigh() if info else 0,
                pool_threads=_here.pool_threads,
            )
        )


def _weigh() -> int:
    """Return the memory that only this process has, or 0 if it was weighed a moment ago."""
    now = time.perf_counter()
    if now < _here.weighed_s:
        return 0
    before = time.thread_time()
    own = own_bytes()
    cost = time.thread_time() - before
    _here.weighed_s = now + max(MEMORY_EVERY_S, cost / MEMORY_SHARE)
    return own


class _GaugedInit:
    """Begin to note in the worker, after the loader's own `worker_init_fn`."""

    def __init__(self, original: Callable[[int], None] | None, one_thread: bool):
        self.original, self.one_thread = original, one_thread

    def __call__(self, worker_id: int) -> None:
        if self.original is not None:
            self.original(worker_id)
        if self.one_thread:
            _here.limits = threadpool_limits(1)  # holds as long as the object lives
        _note_starts()


def _note_starts() -> None:
    """Make every fetch in this process note its start."""
    for kind in _FETCHERS:
        kind.fetch = _noting(kind.fetch)


def _noting(fetch: Callable[..., Any]) -> Callable[..., Any]:
    def noted_fetch(*args: Any) -> Any:
        _here.started = read_clocks()
        return fetch(*args)

    return noted_fetch
