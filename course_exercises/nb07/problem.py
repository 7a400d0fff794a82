"""What exercise 07.3 is about: training jobs, and how much memory they have."""

from dataclasses import dataclass


@dataclass(frozen=True)
class StagingJob:
    """A training job on one node. Sizes are MB."""

    shm_mb: float  # what /dev/shm may hold, at most
    memory_mb: float  # what the job may use: its cgroup's limit
    program_mb: float  # the training program itself, without workers
    workers: int
    worker_mb: float  # each
    prefetch_factor: int
    batch_mb: float


JOBS = {
    "container": StagingJob(64, 8_000, 2_000, 2, 300, 2, 8),
    "laptop": StagingJob(8_000, 16_000, 3_000, 4, 500, 2, 30),
    "cluster node": StagingJob(256_000, 120_000, 20_000, 16, 1_500, 4, 100),
}
