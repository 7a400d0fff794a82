"""Check that a resumed training serves the rest of the epoch that was interrupted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from keepfed.auditing.checks import ids_of
from keepfed.auditing.record import Audited
from keepfed.auditing.report import AuditFinding


def check_resume(
    before: Sequence[Mapping[str, Any]], loaders: Sequence[Audited]
) -> Iterator[AuditFinding]:
    """Compare the last epoch in the log of the interrupted run with the first epoch after it.

    Args:
        before: Lines of the log of the interrupted run, of all ranks.
        loaders: Loaders of the resumed run, of all ranks.
    """
    for name in dict.fromkeys(audited.name for audited in loaders):
        rows = [row for row in before if row["loader"] == name]
        ranks = [one for one in loaders if one.name == name and one.epochs]
        if not rows or not ranks or ranks[0].draws_again or not ranks[0].epochs[0].training:
            continue
        last = max(row["epoch"] for row in rows)
        old = {str(one) for row in rows if row["epoch"] == last for one in row["samples"]}
        new = {str(one) for audited in ranks for one in ids_of(audited.epochs[0])}
        again, total = old & new, ranks[0].total
        if total is not None and len(old) >= total:
            continue  # the run was interrupted between two epochs
        if again == old:
            says = f"the resumed run serves all {len(again)} samples of the interrupted epoch again"
            yield AuditFinding("starts over", (name,), f"{name}: {says}.")
            continue
        complete = all(audited.epochs[0].complete for audited in ranks)
        missing = 0 if total is None or not complete else total - len(old | new)
        if missing > (ranks[0].batch_size * len(ranks) if ranks[0].drop_last else 0):
            says = f"{missing} of {total} samples are served neither before the interruption"
            yield AuditFinding("skipped by the resume", (name,), f"{name}: {says} nor after it.")
        if again:
            says = f"the resumed run serves {len(again)} samples of the interrupted epoch again"
            for_example = f"for example sample {min(again)}"
            yield AuditFinding("served again", (name,), f"{name}: {says}, {for_example}.")
