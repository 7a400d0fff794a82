"""Audit a loader in this process."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from copy import copy
from typing import Any

from torch.utils.data.dataloader import _BaseDataLoaderIter

from keepfed.auditing.account import Account, describe, sampler_of
from keepfed.auditing.checks import check
from keepfed.auditing.record import LoaderRecord
from keepfed.auditing.report import AuditReport, check_ids
from keepfed.errors import KeepfedError
from keepfed.measure.hook import Hook, data_loader_in, listen_within


def audit(
    loader: Iterable[Any],
    *,
    epochs: int = 2,
    validation: Iterable[Any] | None = None,
    allow: Collection[str] = (),
) -> AuditReport:
    """Run a loader for some epochs, and check the samples that it serves.

    Before each epoch, the audit calls `set_epoch` if the loader, its sampler or its dataset has it.

    Args:
        loader: A `DataLoader`, or a wrapper. The audit runs the `DataLoader` in it.
        epochs: Number of complete epochs. Findings between epochs need at least two.
        validation: The loader of the validation, which runs once.
        allow: IDs of findings that are meant, such as "repeats".

    Returns:
        The report. `report.right` is False if a fault was found.

    Raises:
        KeepfedError: If there is no `DataLoader` in `loader`, or no finding has an ID in `allow`.
    """
    check_ids(allow)
    records = [_run(loader, "training", epochs)]
    if validation is not None:
        records.append(_run(validation, "validation", 1))
    return check(records, allow=allow)


def _run(loader: Iterable[Any], role: str, epochs: int) -> LoaderRecord:
    inner = data_loader_in(loader)
    if inner is None:
        raise KeepfedError(
            f"The {role} loader is a {type(loader).__name__} without a DataLoader. Audit the "
            "DataLoader that builds your batches."
        )
    record = describe(inner, f"{type(inner.dataset).__name__} of {role}")
    record.validates = role == "validation"
    record.loader = int(record.validates)
    sampler, inner = sampler_of(inner), copy(inner)  # its iterator may have unobserved workers
    inner._iterator = None
    account = Account(record, inner)
    for name, built in [*vars(inner).items()]:
        if isinstance(built, _BaseDataLoaderIter):  # one iterator for all epochs
            hook = Hook(inner, [account.listener])
            setattr(inner, name, hook.begin(inner, type(inner)._get_iterator))
    for epoch in range(epochs):
        for part in (inner, sampler, inner.batch_sampler, inner.dataset):
            if callable(set_epoch := getattr(part, "set_epoch", None)):
                set_epoch(epoch)
        account.start_epoch()
        batches = listen_within(inner, inner, [account.listener], lambda made: None)
        with suppress(StopIteration):
            while True:
                account.ask()
                received = next(batches)
                batch = account.take(received)[0]  # noqa: F841 (the next call compares it)
        account.epoch.complete = True
    for served in record.epochs:
        served.training = not record.validates
    return record
