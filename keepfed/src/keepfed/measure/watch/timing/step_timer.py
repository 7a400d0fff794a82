"""Time the iterations of every loop over a loader, in the process that loops."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from collections.abc import Callable
from itertools import count
from threading import get_ident
from time import perf_counter_ns, process_time_ns, thread_time_ns
from typing import Any

from keepfed.batches import nbytes
from keepfed.limits import get_rank, known
from keepfed.measure.hook import (
    DeviceClock,
    FetchMeter,
    TimedSampler,
    contents_of,
    detach_report,
    device_in_use,
    is_lock_contended,
    pause,
    received_report,
    time_sampler,
    without_report,
)
from keepfed.measure.records import LONG_NS, SOME, UNKNOWN, Iteration
from keepfed.measure.watch.timing.failsafe import give_up
from keepfed.measure.watch.timing.writer import Writer, call_sites

IMMEDIATE_NS = 1_000_000  # maximum time between iter() and next() that counts as one wait
SHORT_NS = 1_000_000  # mean time of an iteration below which few are timed
# Two short iterations are timed, then this many are counted. The sum is odd, so that the timed ones
# are not always the same batches of an epoch.
COUNTED = 127
_MAIN = threading.main_thread().ident

_serials = count(1)
_last = [0]  # serial number of the timer whose next() was called last
_open = weakref.WeakSet["StepTimer"]()  # timers that may have counted iterations


class StepTimer:
    """Timer for the calls of next() of one iterator.

    It has two states. Iterations above 1 ms are all timed. Of shorter ones, two are timed and then
    many are only counted, because a training step evicts this code from the CPU caches, and timing
    then costs up to 50 µs. The counted ones share the time until the next timed one. If the process
    is killed, the last ones are lost.
    """

    def __init__(self, writer: Writer, meter: FetchMeter | None, began_ns: int):
        self.writer, self.meter, self.totals = writer, meter, writer.file.totals
        self._serial = next(_serials)
        workers = writer.about["workers"] > 0
        self._packed = workers and meter is not None
        self._loads = not workers and meter is not None  # next() loads the batch and meters it
        self._is_lost = False  # whether an error in keepfed stopped this timer
        self._is_short = writer.is_short
        self._began_ns = began_ns  # time at which iter() was called
        self._ready_ns = perf_counter_ns()
        self._index = 0  # index of the next iteration in its epoch
        self._timed = 0  # iterations timed since the epoch began, or since the last counted one
        self._place: int | None = None  # place of the current iteration in the file
        self._got_ns = 0  # arrival of the current batch, 0 if it was not timed
        self._wait_ns = self._work_ns = 0  # times of the last timed iteration
        self._to_count = self._counted = 0  # iterations to count, and those not yet in the file
        self._mark_ns = self._marked = 0  # time and index of the last look at the speed
        self._cpu_ns = self._process_ns = 0  # CPU times at the last reading, 0 if there is none
        self._device: DeviceClock | None = None
        self._sampler: TimedSampler | None = None
        _open.add(self)

    def time_next(self, iterator: Any, next_batch: Callable[[Any], Any]) -> Any:
        """Return `next_batch(iterator)` and time it. Only errors of `next_batch` are raised."""
        asked_ns, counts = 0, self._to_count > 0 or self._is_lost
        if counts:
            _last[0] = self._serial
        else:
            try:
                asked_ns = self._ask(iterator)
            except Exception as error:
                self.stop_watching(error)
        try:
            batch = next_batch(iterator)
        except BaseException as error:
            self._handle_error(error, asked_ns or perf_counter_ns())
            raise
        if counts:
            self._to_count -= 1
            self._counted += 1
        elif not self._is_lost:
            try:
                return self._receive(iterator, batch, asked_ns)
            except Exception as error:
                self.stop_watching(error)
        return without_report(batch) if self._packed else batch

    def stop_watching(self, error: Exception) -> None:
        """Stop timing after an error in keepfed, so that the loop continues unwatched."""
        self._is_lost = True
        give_up(error)

    def end(self) -> None:
        """Stop persistent workers from sending reports with the batches of the next loop."""
        if self.meter is not None:
            self.meter.on[0] = False

    def write_down(self) -> None:
        """Write the iterations that were only counted so far."""
        if self._counted and not self._is_lost:
            try:
                self._add_counted(None)
            except Exception as error:
                self.stop_watching(error)

    def __del__(self) -> None:
        """Write them, except in a forked child, which has only a copy."""
        if self._counted and self.writer.about["pid"] == os.getpid():
            self.write_down()

    def _ask(self, iterator: Any) -> int:
        """End the previous iteration, and return when the loop asks for the next batch."""
        if self._packed and self._index and getattr(iterator, "_num_yielded", None) == 0:
            self._begin_epoch()  # persistent workers start a new epoch after a break
        asked_ns, is_main = perf_counter_ns(), get_ident() == _MAIN
        straight = _last[0] == self._serial  # whether no other loader was used since the last batch
        _last[0] = self._serial
        if self._counted:
            self._add_counted(asked_ns if straight else None)
        elif self._got_ns:
            self._end_iteration(asked_ns if straight else None)
        if self._loads:
            pause(iterator, False)
        if not self._index:
            if not self._is_short:
                self._sampler = time_sampler(iterator)
            if asked_ns - self._ready_ns < IMMEDIATE_NS:
                asked_ns = self._began_ns
        elif self._timed % SOME == 1:
            self._look_at_speed(asked_ns)
            if self._packed and self._wait_ns > LONG_NS:
                self._look_for_locks(iterator)
        if is_main and (self._device is not None or self._timed % SOME < 2) and device_in_use():
            self._device = self._device or DeviceClock(self.writer.add_device_times)
            self._device.asked()
        self._cpu_ns = 0 if self._loads else thread_time_ns()
        return asked_ns

    def _receive(self, iterator: Any, batch: Any, asked_ns: int) -> Any:
        """Write an iteration with all its figures to the file, and return its batch."""
        got_ns, totals, is_main = perf_counter_ns(), self.totals, get_ident() == _MAIN
        received_ns = thread_time_ns() - self._cpu_ns if self._cpu_ns else UNKNOWN
        report = self.meter.last if self._loads and self.meter is not None else None
        if self._packed:
            batch, sent = detach_report(batch)
            if sent is not None:
                report = received_report(sent)
                self.writer.cores |= report.cores
        if self._device is not None and is_main:
            self._device.got(totals.timed)
        self._wait_ns = got_ns - asked_ns
        totals.waited_ns += self._wait_ns
        totals.last_ns = got_ns
        totals.elsewhere += not is_main
        if not self._index:
            totals.first_ns = totals.first_ns or asked_ns
            totals.began_ns += self._wait_ns
        if self._sampler is not None:
            spent_ns, calls = self._sampler.take()
            totals.sampled_ns += spent_ns
            totals.sampler_calls += calls
        iteration = Iteration(
            totals.iterations, totals.epochs, self._index, asked_ns, got_ns, 0, received_ns
        )
        self._place = self.writer.file.add(iteration, report.fetch if report else None)
        if self._index == 1:
            self._describe(batch, is_main)
        if self._timed % SOME == (0 if self._is_short and self._index else 1):
            self._process_ns = process_time_ns()
        self._got_ns, self._index, self._timed = got_ns, self._index + 1, self._timed + 1
        if self._is_short and self._timed % SOME == 2:
            self._begin_counting(iterator)
        return batch

    def _end_iteration(self, asked_ns: int | None) -> None:
        """Write when the loop asked for the next batch, None if it used another loader first."""
        assert self._place is not None
        self.writer.file.set_field(self._place, "left_ns", asked_ns or UNKNOWN)
        if asked_ns is not None:
            self._work_ns = asked_ns - self._got_ns
            self.totals.worked_ns += self._work_ns
            if self._process_ns:
                self.totals.step_cpu_ns += process_time_ns() - self._process_ns
                self.totals.step_seen_ns += self._work_ns
        self._process_ns = 0

    def _look_at_speed(self, asked_ns: int) -> None:
        """Choose the state, from the mean time of an iteration since the last look."""
        if self._mark_ns:
            each_ns = (asked_ns - self._mark_ns) / max(1, self._index - self._marked)
            self._is_short = self.writer.is_short = each_ns < SHORT_NS
        self._mark_ns, self._marked = asked_ns, self._index

    def _begin_counting(self, iterator: Any) -> None:
        """Count the next iterations only, and switch off the meters during that time."""
        self._to_count = COUNTED
        if self._sampler is not None:
            iterator._sampler_iter, self._sampler = self._sampler.indices, None
        if self._loads:
            pause(iterator, True)
        if self._device is not None:
            self._device.forget()

    def _add_counted(self, asked_ns: int | None) -> None:
        """Add the counted iterations, and divide their time into waiting and working.

        Args:
            asked_ns: Time of the first request after them. If None, the loop did something else in
                between, so each of them gets the last measured times.
        """
        counted, self._counted, totals = self._counted, 0, self.totals
        waited, worked = counted * self._wait_ns, (counted + 1) * self._work_ns
        if asked_ns is not None and self._got_ns and waited + worked:
            share = (asked_ns - self._got_ns) / (waited + worked)
            waited, worked = round(share * waited), round(share * worked)
        if self._got_ns:  # nobody saw the end of the last timed iteration
            self._end_iteration(None)
        totals.waited_ns += waited
        totals.worked_ns += worked
        totals.iterations += counted
        self.writer.file.write_totals()
        self._index += counted
        self._timed = self._got_ns = 0

    def _handle_error(self, error: BaseException, asked_ns: int) -> None:
        """Record that next() raised `error`, which ends an epoch or the loop."""
        if self._is_lost:
            return
        try:
            if self._counted:
                self._add_counted(asked_ns)
            self._to_count = 0
            if isinstance(error, StopIteration):
                now_ns, totals = perf_counter_ns(), self.totals
                totals.epochs += 1
                totals.waited_ns += now_ns - asked_ns
                totals.ended_ns += now_ns - asked_ns
                totals.last_ns = now_ns
                self.writer.file.write_totals()
                self._begin_epoch()
        except Exception as own:
            self.stop_watching(own)

    def _look_for_locks(self, iterator: Any) -> None:
        workers = getattr(iterator, "_workers", ())
        if len(workers) > 1:
            self.totals.looks += 1
            self.totals.held_up += is_lock_contended([worker.pid for worker in workers])

    def _describe(self, batch: Any, is_main: bool) -> None:
        """Add facts to the description that are known once the loop runs."""
        self.totals.cores = self.writer.cores.bit_count()
        loop = {"loop": call_sites(sys._getframe(1))[0]} if is_main else {}
        rank, ranks = known(get_rank) or (0, 1)
        moving = {"batch_bytes": nbytes(batch), **contents_of(batch)._asdict()}
        self.writer.describe(rank=rank, ranks=ranks, **loop, **moving)

    def _begin_epoch(self) -> None:
        self._index = self._timed = self._got_ns = self._mark_ns = 0
        self._began_ns = self._ready_ns = perf_counter_ns()
        if self._device is not None:
            self._device.forget()


@atexit.register
def write_down() -> None:
    """Write the counted iterations of all timers."""
    for timer in list(_open):
        timer.write_down()


def _reset_after_fork() -> None:
    """Drop the timers of the parent process in a forked child."""
    global _MAIN
    _last[0], _MAIN = 0, get_ident()
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
