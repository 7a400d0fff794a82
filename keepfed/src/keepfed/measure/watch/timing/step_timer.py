"""Time the iterations of every loop over a loader, in the process that loops."""

from __future__ import annotations

import atexit
import math
import os
import sys
import threading
import weakref
from collections.abc import Callable
from threading import get_ident
from time import perf_counter_ns, process_time_ns, thread_time_ns
from typing import Any

from keepfed.batches import tensors
from keepfed.measure.hook import (
    FetchMeter,
    TimedSampler,
    contents_of,
    detach_report,
    is_lock_contended,
    pause,
    time_sampler,
    without_report,
)
from keepfed.measure.records import LONG_NS, SOME, UNKNOWN, Fetch
from keepfed.measure.watch.timing.device import DeviceClock, device_in_use
from keepfed.measure.watch.timing.failsafe import give_up
from keepfed.measure.watch.timing.last_fetch import LastFetch
from keepfed.measure.watch.timing.ring_file import FieldIndex
from keepfed.measure.watch.timing.writer import Writer, call_sites, get_rank

IMMEDIATE_NS = 1_000_000  # maximum time between iter() and next() that counts as one wait
# Upper bounds: the cost of two timed iterations in a loop whose step evicts the CPU caches, and the
# share of the loop's time that the timing may take.
PAIR_NS, MAX_COST = 100_000, 0.005
# Shorter iterations are skipped, because even storing their times costs 1 %.
VERY_SHORT_NS = 1_000_000
MAX_SKIPPED = 4_095
FAST_SAMPLER_NS = 50_000  # sampler time per batch at which timing costs as much as the sampler
_MAIN = threading.main_thread().ident

_last = [0]  # id of the timer whose next() was called last
_open = weakref.WeakSet["StepTimer"]()  # timers that may have uncounted iterations


class StepTimer:
    """Timer for the calls of next() of one iterator.

    A training step evicts this code from the CPU caches, so the cost of an iteration is the number
    of functions and objects touched, not the work they do. If iterations are very short, the timer
    measures two of them and then skips enough iterations to keep the cost below 1 %. It counts the
    skipped iterations and estimates their times. If the process is killed, the last ones are lost.
    """

    def __init__(self, writer: Writer, meter: FetchMeter | None, began: int):
        self.writer, self.meter = writer, meter
        sink = meter.sinks[0] if meter is not None else None
        self._last = sink if isinstance(sink, LastFetch) else None
        workers = writer.about["workers"] > 0
        self._packed = workers and meter is not None
        self._fetches = not workers and meter is not None  # next() loads the batch and meters it
        self._began = began  # time at which iter() was called
        self._ready = perf_counter_ns()
        self._place = 0  # index of the iteration in the epoch
        self._since = 0  # iterations since the start of the epoch or the last skip
        self._got = self._number = 0  # arrival time of the current batch, and its iteration
        self._main = False  # whether the main thread calls next()
        self._spent = 0  # CPU time of the process at `_got`, 0 if it was not read
        self._device: DeviceClock | None = None
        self._paused = False  # whether the meter is off
        self._lost = False  # whether an error in keepfed stopped this timer
        self._skips = self._gap = 0  # iterations left to skip, and skipped ones not yet counted
        self._wait = self._work = 0.0  # times of the last timed iterations, in ns
        self._mark = self._marked = 0  # time and place of the last call of `_choose_skips`
        self._cpu = 0
        self._sampler: TimedSampler | None = None
        self._fast_sampler = False
        self._sampled_ns = self._sampler_calls = 0  # figures already in the file
        _open.add(self)

    def time_next(self, iterator: Any, next_batch: Callable[[Any], Any]) -> Any:
        """Return `next_batch(iterator)` and time it. Only errors of `next_batch` are raised."""
        if self._skips:
            _last[0] = id(self)
            try:
                batch = next_batch(iterator)
            except BaseException as error:
                self._handle_error(error, perf_counter_ns())
                raise
            self._skips -= 1
            return batch
        asked = 0
        if not self._lost:
            try:
                asked = self._prepare_next(iterator)
            except Exception as error:
                self.stop_watching(error)
        try:
            batch = next_batch(iterator)
        except BaseException as error:
            self._handle_error(error, asked)
            raise
        if not self._lost:
            try:
                return self._write(iterator, batch, asked)
            except Exception as error:
                self.stop_watching(error)
        return without_report(batch) if self._packed else batch

    def stop_watching(self, error: Exception) -> None:
        """Stop timing after an error in keepfed, so that the loop continues unwatched."""
        self._lost, self._skips = True, 0
        give_up(error)

    def end(self) -> None:
        """Stop persistent workers from sending figures with the batches of the next loop."""
        if self._last is not None:
            self._last.on[0] = False

    def write_down(self) -> None:
        """Count the skipped iterations so far."""
        try:
            if self._gap:
                self._count_skipped(None)
        except Exception as error:
            self.stop_watching(error)

    def __del__(self) -> None:
        """Count skipped iterations, except in a forked child, which has only a copy."""
        if self._gap and self.writer.about["pid"] == os.getpid():
            self.write_down()

    def _prepare_next(self, iterator: Any) -> int:
        """End the previous iteration, and return when the loop asks for the next batch."""
        if self._packed and self._place and getattr(iterator, "_num_yielded", None) == 0:
            self._new_epoch()  # persistent workers start a new epoch after a break
        looks = not self._place and not self.writer.skips and not self._fast_sampler
        if looks and (timed := time_sampler(iterator)):
            self._sampler, self._sampled_ns, self._sampler_calls = timed, 0, 0
        asked, straight = perf_counter_ns(), _last[0] == id(self)
        _last[0] = id(self)
        if self._spent:
            self._add_step_cpu(asked, straight)
        if self._gap:
            self._count_skipped(asked if straight else None)
        since = self._since
        if since % SOME == 1 and not self._packed:
            self._choose_skips(asked)
        if self._paused:
            pause(iterator, False)
            self._paused = False
        return self._start_iteration(iterator, asked, straight)

    def _start_iteration(self, iterator: Any, asked: int, straight: bool) -> int:
        """Start an iteration that goes to the file, and return when the loop began to wait."""
        place, since, main = self._place, self._since, get_ident() == _MAIN
        self._main = main
        if place and self._got:
            self.writer.file.end_iteration(self._number, asked if straight else None)
            self._work = asked - self._got if straight else self._work
        elif not place and asked - self._ready < IMMEDIATE_NS:
            asked = self._began
        # Look for a device only in some iterations, because that is a tenth of the total cost.
        device = self._get_device_clock() if main and (self._device or since % SOME < 2) else None
        if device is not None:
            device.asked()
        if self._packed and since % SOME == 1 and self._wait > LONG_NS:
            self._check_for_locks(iterator)
        reads = not self._fetches and (since % SOME == 1 or asked - self._got > LONG_NS)
        self._cpu = thread_time_ns() if reads else 0
        return asked

    def _write(self, iterator: Any, batch: Any, asked: int) -> Any:
        """Write an iteration with all its figures to the file, and return its batch."""
        place, since, file, got = self._place, self._since, self.writer.file, perf_counter_ns()
        received = thread_time_ns() - self._cpu if self._cpu else UNKNOWN
        if self._device is not None and self._main:
            self._device.got(file.iterations)
        fetch = self._last.fetch if self._last is not None else None
        if self._packed:
            batch, fetch = self._unpacked(batch)
        self._number, self._got = file.add_iteration(place, asked, got, received, fetch), got
        self._wait = got - asked
        if place == 1:
            self._describe(batch)
        if since % SOME == (0 if self.writer.skips and place else 1):
            self._spent = process_time_ns()
        if not self._main:
            file.figures[FieldIndex.ELSEWHERE] += 1
        if self._sampler is not None and since % SOME == 1:
            self._count_sampling(iterator, self._sampler)
        self._place, self._since = place + 1, since + 1
        if since % SOME == 1 and self.writer.skips:
            self._skip(iterator, self.writer.skips)
        return batch

    def _choose_skips(self, asked: int) -> None:
        """Choose how many iterations to skip, from the mean time since the last call."""
        if self._mark:
            each = (asked - self._mark) / max(1, self._place - self._marked)
            self.writer.skips = _skips(each)
        self._mark, self._marked = asked, self._place

    def _skip(self, iterator: Any, count: int) -> None:
        """Skip the next `count` iterations, and switch off the meters during that time."""
        self._skips = self._gap = count
        if self._sampler is not None:  # timing the sampler costs too much in short iterations
            iterator._sampler_iter, self._sampler = self._sampler.indices, None
        if self._fetches:
            pause(iterator, True)
            self._paused = True
        if self._device is not None:
            self._device.forget()

    def _count_skipped(self, asked: int | None) -> None:
        """Count the iterations skipped so far, and divide their time into waiting and working.

        Args:
            asked: Time of the first request after the skipped iterations. If None, the loop did
                something else in between, so each skipped iteration gets the last measured times.
        """
        count, self._gap = self._gap - self._skips, self._skips
        waited, worked = count * self._wait, (count + 1) * self._work
        if asked is not None and self._got and waited + worked:
            share = (asked - self._got) / (waited + worked)
            waited, worked = share * waited, share * worked
        if self._got:  # the end of the last timed iteration was skipped
            self.writer.file.end_iteration(self._number, None)
        self.writer.file.add_skipped(count, waited, worked)
        self._place += count
        self._since = self._got = 0

    def _handle_error(self, error: BaseException, asked: int) -> None:
        """Record that next() raised `error`, which ends an epoch or the loop."""
        if self._lost:
            return
        try:
            if self._gap:
                self._count_skipped(asked)
                self._skips = self._gap = 0
            if isinstance(error, StopIteration):
                self._end_epoch(asked)
        except Exception as own:
            self.stop_watching(own)

    def _count_sampling(self, iterator: Any, sampler: TimedSampler) -> None:
        """Add the time of the sampler, and stop timing a fast sampler."""
        figures = self.writer.file.figures
        figures[FieldIndex.SAMPLED] += sampler.spent_ns - self._sampled_ns
        figures[FieldIndex.SAMPLER_CALLS] += sampler.count - self._sampler_calls
        self._sampled_ns, self._sampler_calls = sampler.spent_ns, sampler.count
        if sampler.count >= SOME and sampler.spent_ns < FAST_SAMPLER_NS * sampler.count:
            iterator._sampler_iter, self._sampler = sampler.indices, None
            self._fast_sampler = True

    def _check_for_locks(self, iterator: Any) -> None:
        figures, workers = self.writer.file.figures, getattr(iterator, "_workers", ())
        if len(workers) > 1:
            figures[FieldIndex.LOOKS] += 1
            figures[FieldIndex.HELD_UP] += is_lock_contended([one.pid for one in workers])

    def _add_step_cpu(self, asked: int, straight: bool) -> None:
        """Add the CPU time that all threads of the process used during a step."""
        if straight:
            figures = self.writer.file.figures
            figures[FieldIndex.STEP_CPU] += process_time_ns() - self._spent
            figures[FieldIndex.STEP_SEEN] += asked - self._got
        self._spent = 0

    def _unpacked(self, received: Any) -> tuple[Any, Fetch | None]:
        """Return a batch, and the cost of its fetch if the worker sent it."""
        batch, about = detach_report(received)
        if about is None:
            return batch, None
        fetch, cores = about
        self.writer.cores |= cores
        return batch, Fetch._make(fetch)

    def _describe(self, batch: Any) -> None:
        """Add facts to the description that are known once the loop runs."""
        self.writer.file.figures[FieldIndex.CORES] = self.writer.cores.bit_count()
        if self._main:  # iter() may have been called elsewhere
            self.writer.describe(loop=call_sites(sys._getframe(1))[0])
        nbytes = sum(tensor.nbytes for tensor in tensors(batch))
        self.writer.describe(**get_rank(), batch_bytes=nbytes, **contents_of(batch)._asdict())

    def _end_epoch(self, asked: int) -> None:
        figures, now = self.writer.file.figures, perf_counter_ns()
        figures[FieldIndex.EPOCHS] += 1
        figures[FieldIndex.WAITED] += now - asked
        figures[FieldIndex.ENDED] += now - asked
        figures[FieldIndex.LAST] = now
        self._new_epoch()

    def _new_epoch(self) -> None:
        self._place = self._since = self._got = self._mark = 0
        self._began = self._ready = perf_counter_ns()
        if self._device is not None:
            self._device.forget()

    def _get_device_clock(self) -> DeviceClock | None:
        """Return the clock of the device, or None if the program does not use CUDA now."""
        if not device_in_use():
            return None
        if self._device is None:
            self._device = DeviceClock(self.writer.add_device_times)
        return self._device


def _skips(iteration_ns: float) -> int:
    """Return how many iterations to skip after two timed ones of `iteration_ns` each."""
    if iteration_ns > VERY_SHORT_NS:
        return 0
    count = min(MAX_SKIPPED, math.ceil(PAIR_NS / MAX_COST / max(iteration_ns, 1.0)))
    return count | 1  # with an odd distance, the iterations use all rows of the file


@atexit.register
def write_down() -> None:
    """Count the skipped iterations of all timers."""
    for timer in list(_open):
        timer.write_down()


def _reset_after_fork() -> None:
    """Drop the timers of the parent process in a forked child."""
    global _MAIN
    _last[0], _MAIN = 0, get_ident()
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
