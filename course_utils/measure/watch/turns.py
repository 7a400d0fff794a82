"""Time the turns of every loop over a loader, in the process that loops.

The loader's own iterator is handed out, so that all that asks it for something finds it as it is;
only its `next()` comes here first.
"""

from __future__ import annotations

import atexit
import os
import sys
import sysconfig
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from operator import attrgetter
from pathlib import Path
from threading import get_ident
from time import perf_counter_ns, process_time_ns, thread_time_ns
from types import FrameType
from typing import Any

import torch
from torch import distributed
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from course_utils.limits import usable_cores
from course_utils.measure.hook import (
    is_heard,
    listen,
    listeners_of,
    pause,
    reads_whole_batches,
    unpacked,
)
from course_utils.measure.watch.device import DeviceClock, device_at_work
from course_utils.measure.watch.fetches import Clocks, Cost
from course_utils.measure.watch.record import (
    ENDING,
    LONG_NS,
    NO_STAGES,
    SOME,
    UNKNOWN,
    At,
    Record,
    records_folder,
)

MOST_LOADERS = 16  # of a process; those after them are not watched
AT_ONCE_NS = 1_000_000  # between iter() and next(): then they are one wait
SHORT_NS = 8_000_000  # to follow how the batch of such a turn is made would cost up to 2 % of it
_LIBRARIES = sysconfig.get_path("stdlib"), "site-packages", "dist-packages"
_MAIN = threading.main_thread().ident
_OURS = str(Path(__file__).parents[2])

_writers: list[Writer] = []
_last = 0  # the id of the turns whose next() was called last
_open = weakref.WeakSet["Turns"]()  # some of them may not be written down yet


def begin(loader: Any, make: Callable[[Any], Iterator[Any]]) -> Iterator[Any]:
    """Return `make(loader)`, a `DataLoader`'s iterator, and watch it unless this is a worker."""
    writer = None if get_worker_info() is not None else _writer_of(loader)
    if writer is None:
        return make(loader)
    began, clocks = perf_counter_ns(), None
    if is_heard(loader):  # somebody records it already
        iterator = make(loader)
    else:
        clocks = _clocks_of(loader)
        iterator = listen(loader, [clocks], make)
    iterator._watched_turns = Turns(writer, clocks, began)  # type: ignore[attr-defined]
    return iterator


def timed(batches: Any) -> Iterator[Any]:
    """Yield `batches`, which are no `DataLoader`, and watch the loop that takes them."""
    writer = _writer_of(batches)
    if writer is None:
        yield from batches
        return
    began = perf_counter_ns()
    yield from _taken(iter(batches), Turns(writer, None, began))


def timed_loader(around: Any, loader: Any) -> Iterator[Any]:
    """Yield the batches of `around`, which is a `DataLoader` or has one, and watch that one."""
    watched = list[Any]()

    def get_iterator(make: Callable[[Any], Iterator[Any]]) -> Iterator[Any]:
        iterator: Any = begin(loader, make)
        if hasattr(iterator, "_watched_turns"):
            watched.append(iterator)
            if not hasattr(iterator, "timed"):  # else an earlier loop over it was never ended
                iterator.__class__ = _timed_kind(type(iterator))
        return iterator  # type: ignore[no-any-return]

    if loader._iterator is not None:  # of persistent workers, which is not asked for again
        get_iterator(attrgetter("_iterator"))
    vars(loader)["_get_iterator"] = partial(get_iterator, type(loader)._get_iterator)
    try:
        yield from around
    finally:
        vars(loader).pop("_get_iterator", None)
        for iterator in watched:
            iterator._watched_turns.end()
            if hasattr(iterator, "timed"):
                iterator.__class__ = type(iterator).__base__


def _timed_kind(kind: Any) -> type:
    """Return a kind of iterators whose next() comes here first."""

    def timed(iterator: Any) -> Any:
        return iterator._watched_turns.take(iterator, kind.__next__)

    return type(kind.__name__, (kind,), {"__next__": timed, "timed": True})


def _clocks_of(loader: Any) -> Clocks:
    """Return those that running persistent workers know, or new ones."""
    known = (one for one in listeners_of(loader) if isinstance(one, Clocks))
    clocks = next(known, None) or Clocks(lasting=loader.persistent_workers)
    if clocks.taken is not None:
        clocks.taken.fill_(True)
    return clocks


def _taken(iterator: Iterator[Any], turns: Turns) -> Iterator[Any]:
    while True:
        try:
            batch = turns.take(iterator, next)
        except StopIteration:
            return
        yield batch


class Writer:
    """Writes down what is seen of one loader in this process."""

    def __init__(self, loader: Any, about: Mapping[str, Any]):
        self.loader, self.about = _reference(loader), about
        name = f"{os.getpid()}-{len(_writers)}{ENDING}"
        self.record = Record(records_folder() / name, about)
        self.cores = 0  # a bit for each that the workers may use

    def device_told(self, number: float, idle_ns: float, work_ns: float) -> None:
        """Enter what the device says of an earlier turn."""
        self.record.amend(number, At.DEVICE_IDLE, idle_ns)
        self.record.amend(number, At.DEVICE_WORK, work_ns)
        self.record.figures[At.IDLE] += idle_ns
        self.record.figures[At.IDLE_TURNS] += 1

    def describe(self, **more: Any) -> None:
        """Add to the description."""
        self.about = {**self.about, **more}
        self.record.describe(self.about)


class Turns:
    """Times the calls of next() of one iterator.

    A step leaves nothing of this in the caches of the core: what costs time here is how many
    functions and objects are met, far more than what they do. So they are few; and where turns are
    short and batches made in this process, most of them only have their times kept, which are
    written down with the next turn that is followed. Whoever kills the process loses so many.
    """

    def __init__(self, writer: Writer, clocks: Clocks | None, began: int):
        self.writer, self.clocks = writer, clocks
        workers = writer.about["workers"] > 0
        self._packed = workers and clocks is not None
        self._fetches = not workers and clocks is not None  # in next(), and its cost is read there
        self._began = began  # making the iterator, until the first batch is asked for
        self._ready = perf_counter_ns()
        self._place = 0  # in the epoch
        self._asked = 0  # for the batch before
        self._got = self._number = 0  # when the batch came that the loop works on, and its turn
        self._main = False  # the main thread calls next()
        self._spent = 0  # processor time of the process when that batch came; 0: of most turns
        self._device: DeviceClock | None = None
        self._paused = False  # nobody follows how a batch is made
        self._kept: list[tuple[int, int, int, bool, float]] = []  # turns that are not written down
        _open.add(self)

    def take(self, iterator: Any, next_batch: Callable[[Any], Any]) -> Any:
        """Return `next_batch(iterator)`, and note the turn that begins so."""
        global _last
        if self._packed and self._place and getattr(iterator, "_num_yielded", None) == 0:
            self._new_epoch()  # of persistent workers, after a break
        place, asked, straight, _last = self._place, perf_counter_ns(), _last == id(self), id(self)
        if self._spent:
            self._step_ends(asked, straight)
        short = self._fetches and place % SOME > 1 and asked - self._asked < SHORT_NS
        quick = short and self._main and self._device is None
        if quick != self._paused:
            pause(iterator, quick)
            self._paused = quick
        try:
            turn = self._time_quickly if quick else self._time
            batch = turn(iterator, next_batch, asked, straight)
        except BaseException as error:
            if quick:
                self.write_down()
                self.writer.record.left(self._number, asked if straight else None)
            if isinstance(error, StopIteration):
                self._epoch_ends(asked)
            raise
        self._place, self._asked = place + 1, asked
        return batch

    def _time_quickly(
        self, iterator: Any, next_batch: Callable[[Any], Any], asked: int, straight: bool
    ) -> Any:
        """Return the next batch, and keep the times of the turn."""
        cpu = thread_time_ns()
        batch = next_batch(iterator)
        got = perf_counter_ns()
        spent = thread_time_ns() - cpu if got - asked > LONG_NS else UNKNOWN
        self._kept.append((self._place, asked, got, straight, spent))
        return batch

    def end(self) -> None:
        """Have persistent workers send nothing but batches to whoever loops next."""
        if self.clocks is not None and self.clocks.taken is not None:
            self.clocks.taken.fill_(False)

    def write_down(self) -> None:
        """Write down the turns that were kept."""
        record = self.writer.record
        for place, asked, got, straight, spent in self._kept:
            record.left(self._number, asked if straight else None)
            fetch = -1, asked, 0.0, got, spent, spent, UNKNOWN, 0.0, *NO_STAGES
            self._number, self._got = record.turn(place, asked, got, UNKNOWN, fetch), got
        self._kept.clear()

    def __del__(self) -> None:
        """Write down what is left when the loop is: a forked process has only a copy of it."""
        if self._kept and self.writer.about["pid"] == os.getpid():
            self.write_down()

    def _time(
        self, iterator: Any, next_batch: Callable[[Any], Any], asked: int, straight: bool
    ) -> Any:
        """Return the next batch, and write down the turn with all that can be known of it."""
        self.write_down()
        place, record, main = self._place, self.writer.record, get_ident() == _MAIN
        self._main = main
        if place:
            record.left(self._number, asked if straight else None)
        elif asked - self._ready < AT_ONCE_NS:
            asked = self._began
        # whether there is one is asked in some turns only: that alone is a tenth of what all costs
        device = self._device_now() if main and (self._device or place % SOME < 2) else None
        if device is not None:
            device.asked()
        reads = not self._fetches and (place % SOME == 1 or asked - self._got > LONG_NS)
        cpu = thread_time_ns() if reads else 0
        batch = next_batch(iterator)
        got, received = perf_counter_ns(), thread_time_ns() - cpu if reads else UNKNOWN
        if device is not None:
            device.got(record.turns)
        fetch = self.clocks.fetch if self.clocks is not None else None
        if self._packed:
            batch, fetch = self._unpacked(batch)
        self._number, self._got = record.turn(place, asked, got, received, fetch), got
        if place % SOME == 1:
            if place == 1:
                self._describe(batch)
            self._spent = process_time_ns()
        if not main:
            record.figures[At.ELSEWHERE] += 1
        return batch

    def _step_ends(self, asked: int, straight: bool) -> None:
        """Count what the loop's own work took of the cores, with all threads of the process."""
        if straight:
            figures = self.writer.record.figures
            figures[At.STEP_CPU] += process_time_ns() - self._spent
            figures[At.STEP_SEEN] += asked - self._got
        self._spent = 0

    def _unpacked(self, received: Any) -> tuple[Any, Cost | None]:
        """Return a batch, and what its worker says of its fetch."""
        batch, about = unpacked(received)
        if about is None:
            return batch, None
        fetch, cores = about
        self.writer.cores |= cores
        return batch, fetch

    def _describe(self, batch: Any) -> None:
        """Write what is known once the loop is under way."""
        self.writer.record.figures[At.CORES] = self.writer.cores.bit_count()
        self.writer.describe(**_place_in_the_world(), batch_bytes=_bytes(batch))

    def _epoch_ends(self, asked: int) -> None:
        figures, now = self.writer.record.figures, perf_counter_ns()
        figures[At.EPOCHS] += 1
        figures[At.WAITED] += now - asked
        figures[At.LAST] = now
        self._new_epoch()

    def _new_epoch(self) -> None:
        self._place = self._got = 0
        self._began = self._ready = perf_counter_ns()
        if self._device is not None:
            self._device.forget()

    def _device_now(self) -> DeviceClock | None:
        """Return what marks the turns on the device."""
        if not device_at_work():
            return None
        if self._device is None:
            self._device = DeviceClock(self.writer.device_told)
        return self._device


def _writer_of(loader: Any) -> Writer | None:
    """Return the writer of `loader`; a loader that is gone and was alike hands its own on."""
    known = next((writer for writer in _writers if writer.loader() is loader), None)
    if known is not None:
        return known
    about = _description(loader)
    for writer in _writers:
        if writer.loader() is None and all(
            writer.about[key] == about[key] for key in _DISTINGUISHES
        ):
            writer.loader = _reference(loader)
            return writer
    if len(_writers) == MOST_LOADERS:
        return None
    _writers.append(Writer(loader, about))
    return _writers[-1]


_DISTINGUISHES = ("kind", "dataset", "batch_size", "workers", "prefetch_factor", "at", "inner")


def _description(loader: Any) -> dict[str, Any]:
    """Return what a reader needs to know which loader this is; its length is not asked for.

    An `IterableDataset` would then begin to warn of samples beyond that length.
    """
    at, inner = _called_from(sys._getframe(1))
    context = getattr(loader, "multiprocessing_context", None) or torch.multiprocessing
    # asked otherwise, it would be chosen for good
    method = context.get_start_method(allow_none=True) or context.get_all_start_methods()[0]
    workers = getattr(loader, "num_workers", 0)
    return {
        "kind": type(loader).__name__,
        "takes": _takes(loader),
        "dataset": type(getattr(loader, "dataset", loader)).__name__,
        "batch_size": _batch_size(loader),
        "getitems": reads_whole_batches(loader),
        "workers": workers,
        "prefetch_factor": getattr(loader, "prefetch_factor", None) or 2,
        "persistent": bool(getattr(loader, "persistent_workers", False)),
        "pinned": bool(getattr(loader, "pin_memory", False)),
        "start_method": method if workers else "",
        "at": at,
        "inner": inner,
        "pid": os.getpid(),
        "main_cores": usable_cores(),
        **_place_in_the_world(),
    }


def _takes(loader: Any) -> str:
    """Return how the loader comes by its samples, in the words of a diagnosis."""
    if not isinstance(loader, DataLoader):
        return "no DataLoader"
    if isinstance(loader.dataset, IterableDataset):
        return "stream"
    return "samples" if loader.batch_sampler is None else "batches of samples"


def _place_in_the_world() -> dict[str, Any]:
    """Return which rank this is, as far as it is known by now, and what it computes on."""
    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if distributed.is_available() and distributed.is_initialized():
        rank, ranks = distributed.get_rank(), distributed.get_world_size()
    started = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return {
        "rank": rank,
        "ranks": ranks,
        "device": torch.cuda.get_device_name() if started else "",
        "threads": torch.get_num_threads(),
    }


def _batch_size(loader: Any) -> int | None:
    size = getattr(loader, "batch_size", None)
    if size is None:
        size = getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    return size if isinstance(size, int) else None


def _place(file: str, line: int) -> str:
    # a cell of a notebook is compiled under a name that nobody has given it
    in_a_cell = Path(file).parent.name.startswith("ipykernel_")
    return f"line {line} of a cell" if in_a_cell else f"{Path(file).name}:{line}"


def _called_from(frame: FrameType | None) -> tuple[str, str]:
    """Return where the program loops, and where the library does that it calls."""
    inner = ""
    while frame is not None:
        file = frame.f_code.co_filename
        place = _place(file, frame.f_lineno)
        ours = file.startswith(_OURS) or f"{os.sep}torch{os.sep}utils{os.sep}data{os.sep}" in file
        if not ours:
            inner = inner or place
            if not any(part in file for part in _LIBRARIES) and file[:1] != "<":
                return place, inner
        frame = frame.f_back
    return inner, inner


def _reference(loader: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(loader)
    except TypeError:  # a list of batches, say
        return lambda: loader


def _bytes(batch: Any) -> int:
    """Return the bytes of the tensors in nested containers."""
    if isinstance(batch, torch.Tensor):
        return batch.nbytes
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    return sum(map(_bytes, batch)) if isinstance(batch, (list, tuple)) else 0


@atexit.register
def write_down() -> None:
    """Write down all turns that were kept."""
    for turns in list(_open):
        turns.write_down()


def _begin_as_child() -> None:
    """Forget the loops of the process that was forked: their records are its own."""
    global _last, _MAIN
    _last, _MAIN = 0, get_ident()
    _writers.clear()
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_as_child)
