"""One iteration of a training loop."""

from __future__ import annotations

from typing import NamedTuple

from keepfed.measure.records.fetch import UNKNOWN


class Iteration(NamedTuple):
    """One iteration of a loop: a call of next(), and what the loop did with the batch."""

    number: int
    epoch: int
    place: int  # in the epoch
    asked_ns: int
    got_ns: int
    left_ns: int = 0  # when the loop was done with the batch; 0: not yet, UNKNOWN: not known
    receiving_ns: int = UNKNOWN  # processor time of the main thread in next()
    device_idle_ns: int = UNKNOWN  # during next(), by the clock of the device
    device_work_ns: int = UNKNOWN  # from the batch to the next call of next(), by the same clock
    total_cpu_ns: int = UNKNOWN  # of this process since it began, when the loop was done
    total_delay_ns: int = UNKNOWN  # for which its main thread was ready and had no core, until then

    @property
    def wait_ns(self) -> int:
        """How long next() took."""
        return self.got_ns - self.asked_ns
