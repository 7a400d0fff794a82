"""Training jobs of exercise 07.3, and their memory."""

from dataclasses import dataclass


@dataclass(frozen=True)
class StagingJob:
    """A training job on one node. Sizes are MB."""

    shm_mb: float  # size of /dev/shm
    memory_mb: float  # limit of the job, from its cgroup
    program_mb: float  # memory of the training program, without workers
    workers: int
    worker_mb: float  # memory of each worker
    prefetch_factor: int
    batch_mb: float


JOBS = {
    "container": StagingJob(64, 8_000, 2_000, 2, 300, 2, 8),
    "laptop": StagingJob(8_000, 16_000, 3_000, 4, 500, 2, 30),
    "cluster node": StagingJob(256_000, 120_000, 20_000, 16, 1_500, 4, 100),
}
