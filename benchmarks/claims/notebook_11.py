"""What notebook 11 claims of ranks."""

from typing import Any

import torch
from torch.distributed.constants import default_pg_nccl_timeout, default_pg_timeout
from torch.utils.data import DistributedSampler, TensorDataset

TEN = TensorDataset(torch.arange(10))


def served_of_ten() -> int:
    """Count what a DistributedSampler serves of ten samples, on four ranks together."""
    return sum(len([*DistributedSampler(TEN, 4, rank)]) for rank in range(4))


def orders_without_set_epoch() -> int:
    """Count the orders of three epochs in which nobody calls set_epoch."""
    sampler: DistributedSampler[Any] = DistributedSampler(TEN, 4, 0)
    return len({tuple(sampler) for _ in range(3)})


def minutes_of_patience() -> set[float]:
    """Return how long the ranks of either kind wait for each other where nobody says."""
    known = (default_pg_timeout, default_pg_nccl_timeout)  # the latter only where NCCL is built in
    return {timeout.total_seconds() / 60 if timeout else 10 for timeout in known}
