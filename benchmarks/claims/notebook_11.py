"""Count the claims of notebook 11 about ranks."""

from typing import Any

import torch
from torch.distributed.constants import default_pg_nccl_timeout, default_pg_timeout
from torch.utils.data import DistributedSampler, TensorDataset

TEN = TensorDataset(torch.arange(10))


def served_of_ten() -> int:
    """Count the samples that a DistributedSampler of ten samples serves on four ranks."""
    return sum(len([*DistributedSampler(TEN, 4, rank)]) for rank in range(4))


def orders_without_set_epoch() -> int:
    """Count the orders of three epochs without a call of set_epoch."""
    sampler: DistributedSampler[Any] = DistributedSampler(TEN, 4, 0)
    return len({tuple(sampler) for _ in range(3)})


def minutes_of_patience() -> set[float]:
    """Return the default timeouts of both kinds of process groups, in minutes."""
    known = (default_pg_timeout, default_pg_nccl_timeout)  # the latter is None without NCCL
    return {timeout.total_seconds() / 60 if timeout else 10 for timeout in known}
