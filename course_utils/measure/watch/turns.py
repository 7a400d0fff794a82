"""Time the turns of every loop over a loader, in the process that loops.

The loader's own iterator is handed out, so that all that asks it for something finds it as it is;
only its `next()` comes here first.
"""

from __future__ import annotations

import atexit
import math
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
    contents,
    is_heard,
    listen,
    listeners_of,
    pause,
    reads_whole_batches,
    unpacked,
)
from course_utils.measure.watch.device import DeviceClock, device_at_work
from course_utils.measure.watch.fetches import Clocks, Cost
from course_utils.measure.watch.harmless import give_up, has_failed
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
# Upper bounds: what two timed turns cost in a loop whose step leaves the caches cold, and the share
# of the loop's time that this may take.
PAIR_NS, COST = 100_000, 0.005
VERY_SHORT_NS = 1_000_000  # shorter turns are skipped, because even keeping their times costs 1 %
MOST_SKIPPED = 4_095
_LIBRARIES = sysconfig.get_path("stdlib"), "site-packages", "dist-packages"
_MAIN = threading.main_thread().ident
_OURS = str(Path(__file__).parents[2])

_writers: list[Writer] = []
_last = [0]  # the id of the turns whose next() was called last
_open = weakref.WeakSet["Turns"]()  # some of them may not be written down yet


def begin(loader: Any, make: Callable[[Any], Iterator[Any]]) -> Iterator[Any]:
    """Return `make(loader)`, a `DataLoader`'s iterator, and watch it unless this is a worker."""
    try:
        turns = None if has_failed() or get_worker_info() is not None else _turns_of(loader)
    except Exception as error:
        give_up(error)
        turns = None
    if turns is None:
        return make(loader)
    iterator: Any = make(loader) if turns.clocks is None else _listened(loader, turns, make)
    try:
        iterator._watched_turns = turns
    except Exception as error:  # its class has slots
        turns.lose(error)
        return _taken(iterator, turns)
    return iterator  # type: ignore[no-any-return]


def _turns_of(loader: Any) -> Turns | None:
    """Return what times a loop over a `DataLoader`; None after too many loaders."""
    writer = _writer_of(loader)
    if writer is None:
        return None
    recorded = is_heard(loader)  # by somebody else already
    return Turns(writer, None if recorded else _clocks_of(loader), perf_counter_ns())


def _listened(loader: Any, turns: Turns, make: Callable[[Any], Iterator[Any]]) -> Iterator[Any]:
    """Return `make(loader)` with the clocks in it; errors of `make` are the program's own."""
    called = False

    def make_once(loader: Any) -> Iterator[Any]:
        nonlocal called
        called = True
        return make(loader)

    assert turns.clocks is not None
    try:
        return listen(loader, [turns.clocks], make_once)
    except Exception as error:
        if called:
            raise
        turns.lose(error)
    return make(loader)


def timed(batches: Any) -> Iterator[Any]:
    """Yield `batches`, which are no `DataLoader`, and watch the loop that takes them."""
    turns = None
    try:
        if not has_failed() and (writer := _writer_of(batches)) is not None:
            turns = Turns(writer, None, perf_counter_ns())
    except Exception as error:
        give_up(error)
    yield from batches if turns is None else _taken(iter(batches), turns)


def timed_loader(around: Any, loader: Any) -> Iterator[Any]:
    """Yield the batches of `around`, which is a `DataLoader` or has one, and watch that one."""
    watched = list[Any]()

    def get_iterator(make: Callable[[Any], Iterator[Any]]) -> Iterator[Any]:
        iterator: Any = begin(loader, make)
        turns = getattr(iterator, "_watched_turns", None)
        if turns is None:
            return iterator  # type: ignore[no-any-return]
        watched.append(iterator)
        if not hasattr(iterator, "timed"):  # else an earlier loop over it was never ended
            try:
                iterator.__class__ = _timed_kind(type(iterator))
            except Exception as error:
                turns.lose(error)
                return _taken(iterator, turns)
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
    next_batch = kind.__next__

    def timed(iterator: Any) -> Any:
        return iterator._watched_turns.take(iterator, next_batch)

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
        self.skips = 0  # turns that are not timed after each two that are

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

    A training step evicts this code from the CPU caches, so the cost of a turn is the number of
    functions and objects touched, not the work they do. Where batches are made in this process,
    there are two ways to do less. Of short turns most have only their times kept, which are written
    down with the next turn that is followed. Of very short turns two are timed, and then as many
    are skipped as keep the cost below 1 %; they are counted, and their times are estimated.
    Turns that are not written down yet are lost if the process is killed.
    """

    def __init__(self, writer: Writer, clocks: Clocks | None, began: int):
        self.writer, self.clocks = writer, clocks
        workers = writer.about["workers"] > 0
        self._packed = workers and clocks is not None
        self._fetches = not workers and clocks is not None  # in next(), and its cost is read there
        self._began = began  # making the iterator, until the first batch is asked for
        self._ready = perf_counter_ns()
        self._place = 0  # in the epoch
        self._since = 0  # turns since the epoch began, or since turns were skipped
        self._asked = 0  # for the batch before
        self._got = self._number = 0  # when the batch came that the loop works on, and its turn
        self._main = False  # the main thread calls next()
        self._spent = 0  # processor time of the process when that batch came; 0: of most turns
        self._device: DeviceClock | None = None
        self._paused = False  # nobody follows how a batch is made
        self._kept: list[tuple[int, int, int, bool, float]] = []  # turns that are not written down
        self._lost = False  # after an error of our own
        self._skips = self._gap = 0  # turns still to be skipped, and of how many
        self._wait = self._work = 0.0  # of the last turns that were timed, in ns
        self._mark = self._marked = 0  # when the pace was looked at, and the place then
        self._straight = self._quick = False  # of the turn that begins
        self._cpu = 0
        _open.add(self)

    def take(self, iterator: Any, next_batch: Callable[[Any], Any]) -> Any:
        """Return `next_batch(iterator)`, and note the turn that begins so.

        Only errors of `next_batch` come through.
        """
        if self._skips:
            _last[0] = id(self)
            try:
                batch = next_batch(iterator)
            except BaseException as error:
                self._raises(error, perf_counter_ns())
                raise
            self._skips -= 1
            return batch
        asked = 0
        if not self._lost:
            try:
                asked = self._asks(iterator)
            except Exception as error:
                self.lose(error)
        try:
            batch = next_batch(iterator)
        except BaseException as error:
            self._raises(error, asked)
            raise
        if not self._lost:
            try:
                if self._quick:
                    return self._keep(batch, asked)
                return self._write(iterator, batch, asked)
            except Exception as error:
                self.lose(error)
        return contents(batch) if self._packed else batch

    def lose(self, error: Exception) -> None:
        """Let the loop continue unwatched."""
        self._lost, self._skips = True, 0
        self._kept.clear()
        give_up(error)

    def end(self) -> None:
        """Have persistent workers send nothing but batches to whoever loops next."""
        if self.clocks is not None and self.clocks.taken is not None:
            self.clocks.taken.fill_(False)

    def write_down(self) -> None:
        """Write down the turns that were kept, and count those that were skipped."""
        try:
            self._write_kept()
            if self._gap:
                self._count_skipped(None)
        except Exception as error:
            self.lose(error)

    def __del__(self) -> None:
        """Write down what is left when the loop is: a forked process has only a copy of it."""
        if (self._kept or self._gap) and self.writer.about["pid"] == os.getpid():
            self.write_down()

    def _asks(self, iterator: Any) -> int:
        """End the turn before; return when the loop asks for the next batch."""
        if self._packed and self._place and getattr(iterator, "_num_yielded", None) == 0:
            self._new_epoch()  # of persistent workers, after a break
        asked, straight = perf_counter_ns(), _last[0] == id(self)
        self._straight, _last[0] = straight, id(self)
        if self._spent:
            self._step_ends(asked, straight)
        if self._gap:
            self._count_skipped(asked if straight else None)
        since = self._since
        if since % SOME == 1 and not self._packed:
            self._look_at_pace(asked)
        short = self._fetches and since % SOME > 1 and asked - self._asked < SHORT_NS
        self._quick = quick = short and self._main and self._device is None
        if quick != self._paused:
            pause(iterator, quick)
            self._paused = quick
        self._asked = asked
        if quick:
            self._cpu = thread_time_ns()
            return asked
        self._write_kept()
        return self._begins(asked, straight)

    def _begins(self, asked: int, straight: bool) -> int:
        """Begin a turn that is written down; return when the loop began to wait."""
        place, since, main = self._place, self._since, get_ident() == _MAIN
        self._main = main
        if place and self._got:
            self.writer.record.left(self._number, asked if straight else None)
            self._work = asked - self._got if straight else self._work
        elif not place and asked - self._ready < AT_ONCE_NS:
            asked = self._began
        # whether there is one is asked in some turns only: that alone is a tenth of what all costs
        device = self._device_now() if main and (self._device or since % SOME < 2) else None
        if device is not None:
            device.asked()
        reads = not self._fetches and (since % SOME == 1 or asked - self._got > LONG_NS)
        self._cpu = thread_time_ns() if reads else 0
        return asked

    def _keep(self, batch: Any, asked: int) -> Any:
        """Keep the times of a turn; return its batch."""
        got = perf_counter_ns()
        spent = thread_time_ns() - self._cpu if got - asked > LONG_NS else UNKNOWN
        self._kept.append((self._place, asked, got, self._straight, spent))
        self._place += 1
        self._since += 1
        return batch

    def _write(self, iterator: Any, batch: Any, asked: int) -> Any:
        """Write down a turn with all that can be known of it; return its batch."""
        place, since, record, got = self._place, self._since, self.writer.record, perf_counter_ns()
        received = thread_time_ns() - self._cpu if self._cpu else UNKNOWN
        if self._device is not None and self._main:
            self._device.got(record.turns)
        fetch = self.clocks.fetch if self.clocks is not None else None
        if self._packed:
            batch, fetch = self._unpacked(batch)
        self._number, self._got = record.turn(place, asked, got, received, fetch), got
        self._wait = got - asked
        if place == 1:
            self._describe(batch)
        if since % SOME == (0 if self.writer.skips and place else 1):
            self._spent = process_time_ns()
        if not self._main:
            record.figures[At.ELSEWHERE] += 1
        self._place, self._since = place + 1, since + 1
        if since % SOME == 1 and self.writer.skips:
            self._skip(iterator, self.writer.skips)
        return batch

    def _write_kept(self) -> None:
        record = self.writer.record
        for place, asked, got, straight, spent in self._kept:
            record.left(self._number, asked if straight else None)
            fetch = -1, asked, 0.0, got, spent, spent, UNKNOWN, 0.0, *NO_STAGES
            self._number, self._got = record.turn(place, asked, got, UNKNOWN, fetch), got
        self._kept.clear()

    def _look_at_pace(self, asked: int) -> None:
        """Choose how many turns are skipped, from the time of all turns since the last look."""
        if self._mark:
            each = (asked - self._mark) / max(1, self._place - self._marked)
            self.writer.skips = _skips(each)
        self._mark, self._marked = asked, self._place

    def _skip(self, iterator: Any, turns: int) -> None:
        """Begin to skip turns, in which nobody follows how a batch is made."""
        self._skips = self._gap = turns
        if self._fetches:
            pause(iterator, True)
            self._paused = True
        if self._device is not None:
            self._device.forget()

    def _count_skipped(self, asked: int | None) -> None:
        """Count the turns skipped so far; divide their time into waiting and working.

        Args:
            asked: When the loop asked for the turn after them. None if the loop did something
                else in between: then each of them lasted as long as the turns timed before.
        """
        turns, self._gap = self._gap - self._skips, self._skips
        waited, worked = turns * self._wait, (turns + 1) * self._work
        if asked is not None and self._got and waited + worked:
            share = (asked - self._got) / (waited + worked)
            waited, worked = share * waited, share * worked
        if self._got:  # the end of the turn timed last was not timed itself
            self.writer.record.left(self._number, None)
        self.writer.record.skipped(turns, waited, worked)
        self._place += turns
        self._since = self._got = 0

    def _raises(self, error: BaseException, asked: int) -> None:
        """Note that next() raised `error`, which ends an epoch or the loop."""
        if self._lost:
            return
        try:
            if self._gap:
                self._count_skipped(asked)
                self._skips = self._gap = 0
            if self._quick:
                self._write_kept()
                self.writer.record.left(self._number, asked if self._straight else None)
            if isinstance(error, StopIteration):
                self._epoch_ends(asked)
        except Exception as own:
            self.lose(own)

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
        self._place = self._since = self._got = self._mark = 0
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


def _skips(turn_ns: float) -> int:
    """Return how many turns to skip after two that are timed, for turns of `turn_ns`."""
    if turn_ns > VERY_SHORT_NS:
        return 0
    turns = min(MOST_SKIPPED, math.ceil(PAIR_NS / COST / max(turn_ns, 1.0)))
    return turns | 1  # with an odd distance, the turns use all rows of the record


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
    global _MAIN
    _last[0], _MAIN = 0, get_ident()
    _writers.clear()
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_as_child)
