"""Audit a loader in this process."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from typing import Any

from torch.utils.data.dataloader import _BaseDataLoaderIter

from keepfed.auditing.checks import check
from keepfed.auditing.record import Account, Audited, describe
from keepfed.auditing.report import AuditReport
from keepfed.errors import KeepfedError
from keepfed.measure.hook import data_loader_in, listen, listen_within


def audit(
    loader: Iterable[Any], *, epochs: int = 2, validation: Iterable[Any] | None = None
) -> AuditReport:
    """Run a loader for some epochs, and check the samples that it serves.

    Before each epoch, the audit calls `set_epoch` if the loader, its sampler or its dataset has it.

    Args:
        loader: A `DataLoader`, or a wrapper. The audit runs the `DataLoader` in it.
        epochs: Number of complete epochs. Findings between epochs need at least two.
        validation: The loader of the validation, which runs once.

    Returns:
        The report. `report.right` is False if a fault was found.

    Raises:
        KeepfedError: If there is no `DataLoader` in `loader`.
    """
    loaders = [_audited(loader, "training", epochs)]
    if validation is not None:
        loaders.append(_audited(validation, "validation", 1))
    return check(loaders, validates=True)


def _audited(loader: Iterable[Any], role: str, epochs: int) -> Audited:
    inner = data_loader_in(loader)
    if inner is None:
        raise KeepfedError(
            f"The {role} loader is a {type(loader).__name__} without a DataLoader. Audit the "
            "DataLoader that builds your batches."
        )
    audited = describe(inner, f"{type(inner.dataset).__name__} of {role}")
    audited.loader = role == "validation"
    inner = copy(inner)  # an iterator that exists already has workers without a listener
    inner._iterator = None
    account = Account(audited, inner, training=role == "training", thorough=True)
    for name, built in [*vars(inner).items()]:
        if isinstance(built, _BaseDataLoaderIter):  # one iterator for all epochs
            make = type(inner)._get_iterator
            setattr(inner, name, listen(inner, [account.listener], make))
    for epoch in range(epochs):
        parts = inner, inner.sampler, inner.batch_sampler, inner.dataset
        for set_epoch in (getattr(part, "set_epoch", None) for part in parts):
            if callable(set_epoch):
                set_epoch(epoch)
        account.start_epoch()
        batches = listen_within(inner, inner, [account.listener], lambda made: None)
        for received in batches:
            account.take(received)
        account.epoch.complete = True
    return audited
