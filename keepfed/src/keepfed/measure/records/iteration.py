"""The record of one iteration of a training loop."""

from __future__ import annotations

from typing import NamedTuple

from keepfed.measure.records.fetch import UNKNOWN


class Iteration(NamedTuple):
    """One iteration of a loop: a call of next() and the work on its batch."""

    number: int
    epoch: int
    place: int  # index within the epoch
    asked_ns: int  # start of next()
    got_ns: int  # end of next()
    left_ns: int = 0  # end of the work on the batch, 0 if not yet finished, or UNKNOWN
    receiving_ns: int = UNKNOWN  # CPU time of the main thread in next()
    device_idle_ns: int = UNKNOWN  # idle time during next(), by the clock of the device
    device_work_ns: int = UNKNOWN  # time from the batch to the following next(), by the same clock
    total_cpu_ns: int = UNKNOWN  # CPU time of the process from its start to left_ns
    total_delay_ns: int = UNKNOWN  # total time until left_ns in which the main thread had no core

    @property
    def wait_ns(self) -> int:
        """Duration of next()."""
        return self.got_ns - self.asked_ns


def warm_up_batches(prefetched: int, length: int | None) -> int:
    """Return how many first batches of an epoch to drop before the throughput is steady."""
    return min(prefetched + 1, max(1, (length if length is not None else 2**62) // 2))
