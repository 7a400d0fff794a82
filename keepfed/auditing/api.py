"""Audit a loader in this process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch.utils.data import DataLoader

from keepfed.auditing.checks import AuditReport, check
from keepfed.auditing.record import Account, describe
from keepfed.errors import KeepfedError
from keepfed.measure.hook import data_loader_in


def audit(loader: Iterable[Any], *, epochs: int = 2) -> AuditReport:
    """Run a loader for some epochs, and check the samples that it serves.

    The audit uses the loader as a training does. Call `set_epoch` yourself if your training does.

    Args:
        loader: A `DataLoader`, or a wrapper around one.
        epochs: Number of complete epochs. Faults between epochs need at least two.

    Returns:
        The report. `report.right` is False if a fault was found.

    Raises:
        KeepfedError: If there is no `DataLoader` in `loader`.
    """
    inner = data_loader_in(loader)
    if inner is None:
        raise KeepfedError(
            f"`loader` is a {type(loader).__name__} without a DataLoader. Audit the DataLoader "
            "that builds your batches."
        )
    audited = describe(inner, type(inner.dataset).__name__)
    for _ in range(epochs):
        run_epoch(inner, Account(audited, inner))
    return check([audited])


def run_epoch(loader: DataLoader[Any], account: Account) -> None:
    """Take all batches of an epoch."""
    for received in account.begin(loader):
        account.take(received)
    account.end(complete=True)
