"""What the fetch of one batch cost."""

from __future__ import annotations

from typing import NamedTuple

UNKNOWN = -1  # a figure that was not read
LONG_NS = 2_000_000  # of every longer fetch the processor time is read
SOME = 16  # of so many shorter ones, it is read in one: that takes microseconds
MAIN = -1  # the number of the worker of a batch that the main process makes
DATASET_STAGES = ("read", "decode", "transform")  # that a dataset may name, in the order of a Fetch


class Fetch(NamedTuple):
    """What the fetch of one batch cost the process that made it."""

    worker: int
    began_ns: int
    collated_ns: int  # all samples were there, and collating began
    ended_ns: int
    cpu_ns: int = UNKNOWN  # processor time of the thread that fetches
    process_cpu_ns: int = UNKNOWN  # of all threads of its process: more if there are thread pools
    total_cpu_ns: int = UNKNOWN  # of its process since it began
    delay_ns: int = 0  # the thread was ready to run and got no core
    read_ns: int = 0  # of the stages that the dataset names
    decode_ns: int = 0
    transform_ns: int = 0
    asked_bytes: int = UNKNOWN  # that its process had read so far, from whatever file
    disk_bytes: int = UNKNOWN  # and that had to come from a disk
    read_calls: int = UNKNOWN  # by how many system calls
    own_bytes: int = UNKNOWN  # memory that only its process has
    pool_threads: int = UNKNOWN  # the most threads that a pool of a numerical library may use

    @property
    def wall_ns(self) -> int:
        """How long the fetch took."""
        return self.ended_ns - self.began_ns

    @property
    def collate_ns(self) -> int:
        """How long collating took, which is the last part of a fetch."""
        return self.ended_ns - self.collated_ns

    @property
    def computing_ns(self) -> int:
        """How long the fetch computed, also in threads of a pool that it waited for."""
        computed = max(self.cpu_ns, self.process_cpu_ns)
        return min(computed, max(self.wall_ns - self.delay_ns, self.cpu_ns))
