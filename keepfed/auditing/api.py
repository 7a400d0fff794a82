"""Audit a loader in this process."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader

from keepfed.auditing.checks import check, shared_groups
from keepfed.auditing.record import Account, Audited, describe
from keepfed.auditing.report import AuditReport
from keepfed.errors import KeepfedError
from keepfed.measure.hook import data_loader_in


def audit(
    loader: Iterable[Any],
    *,
    epochs: int = 2,
    validation: Iterable[Any] | None = None,
    groups: Sequence[Any] | None = None,
) -> AuditReport:
    """Run a loader for some epochs, and check the samples that it serves.

    The audit uses the loader as a training does. Call `set_epoch` yourself if your training does.

    Args:
        loader: A `DataLoader`, or a wrapper around one.
        epochs: Number of complete epochs. Faults between epochs need at least two.
        validation: The loader of the validation, which runs once.
        groups: Group of each sample, by its index in the dataset below all subsets. Samples of one
            group, such as events of one run, must not be in both loaders.

    Returns:
        The report. `report.right` is False if a fault was found.

    Raises:
        KeepfedError: If there is no `DataLoader` in `loader`.
    """
    training = _described(loader, "training")
    for _ in range(epochs):
        run_epoch(training[0], Account(training[1], training[0]))
    if validation is None:
        return check([training[1]])
    other = _described(validation, "validation")
    with torch.no_grad():  # the audit recognises validation by it
        run_epoch(other[0], Account(other[1], other[0]))
    both = training[1], other[1]
    return check(both, () if groups is None else shared_groups(*both, groups))


def _described(loader: Iterable[Any], role: str) -> tuple[DataLoader[Any], Audited]:
    inner = data_loader_in(loader)
    if inner is None:
        raise KeepfedError(
            f"The {role} loader is a {type(loader).__name__} without a DataLoader. Audit the "
            "DataLoader that builds your batches."
        )
    return inner, describe(inner, f"{type(inner.dataset).__name__} of {role}")


def run_epoch(loader: DataLoader[Any], account: Account) -> None:
    """Take all batches of an epoch."""
    for received in account.begin(loader):
        account.take(received)
    account.end(complete=True)
