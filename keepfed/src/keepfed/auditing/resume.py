"""Check that a resumed training serves the rest of the epoch that was interrupted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from keepfed.auditing.record import LoaderRecord
from keepfed.auditing.report import Finding


def check_resume(
    before: Sequence[Mapping[str, Any]], records: Sequence[LoaderRecord]
) -> Iterator[Finding]:
    """Compare the last epoch in the log of the interrupted run with the first epoch after it.

    Args:
        before: Lines of the log of the interrupted run, of all ranks.
        records: Loaders of the resumed run, of all ranks.
    """
    for name in dict.fromkeys(record.name for record in records):
        rows = [row for row in before if row["loader"] == name]
        ranks = [one for one in records if one.name == name and one.epochs]
        if not rows or not ranks or ranks[0].draws_again or not ranks[0].epochs[0].training:
            continue
        last = max(row["epoch"] for row in rows)
        served = [sample for row in rows if row["epoch"] == last for sample in row["samples"]]
        old = set(served)
        new = {str(sample) for one in ranks for sample in one.epochs[0].ids.tolist()}
        again, total = old & new, ranks[0].total
        if total is not None and len(old) >= total:
            continue  # the run was interrupted between two epochs
        if again == old:
            yield Finding("resume-starts-over", name, {"again": len(again)})
            continue
        complete = all(one.epochs[0].complete for one in ranks)
        missing = 0 if total is None or not complete else total - len(old | new)
        if missing > (ranks[0].batch_size * len(ranks) if ranks[0].drop_last else 0):
            yield Finding("resume-skips", name, {"missing": missing, "of": total})
        if again:
            behind = len(ranks) > 1 or again == {*served[-len(again) :]}
            numbers = {"again": len(again), "sample": min(again)}
            yield Finding("resume-behind" if behind else "resume-repeats", name, numbers)
