"""Compare a resumed training with the log of the run that was interrupted."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from keepfed.auditing.record import LoaderRecord
from keepfed.auditing.report import AuditFinding
from keepfed.checks import open_regular
from keepfed.reading import reading

Row = tuple[str, int, list[str]]  # loader, epoch and samples of a batch


def read_log(log: Path) -> list[Row]:
    """Return the lines of a log, of all ranks, or raise `ReadError`."""
    with reading(log, step="Pass the file of `keepfed audit --log`"), open_regular(log) as file:
        return [*map(_row, file)]


def _row(line: bytes) -> Row:
    match json.loads(line):
        case {"loader": str(loader), "epoch": int(epoch), "samples": list(samples)}:
            return loader, epoch, [*map(str, samples)]
    raise ValueError("it is not a log of an audit")


def check_resume(rows: Sequence[Row], records: Sequence[LoaderRecord]) -> Iterator[AuditFinding]:
    """Compare the last epoch before the interruption with the first one after it, of all ranks."""
    for name in dict.fromkeys(record.name for record in records):
        ranks = [one for one in records if one.name == name and one.epochs]
        last = max((epoch for loader, epoch, _ in rows if loader == name), default=-1)
        before = [n for row in rows if row[:2] == (name, last) for n in row[2]]
        if not before or not ranks or ranks[0].draws_again or not ranks[0].epochs[0].training:
            continue
        old, total = {*before}, ranks[0].total
        new = {str(sample) for one in ranks for sample in one.epochs[0].ids.tolist()}
        if total is not None and len(old) >= total:
            continue  # the run was interrupted between two epochs
        if total is not None and all(one.epochs[0].complete for one in ranks):
            missing = total - len(old | new)
            if missing > ranks[0].spare * len(ranks):
                yield AuditFinding("resume-skips", name, {"missing": missing, "of": total})
        if again := old & new:
            # A loop may serve again what it served since its last checkpoint.
            behind = again != old and (len(ranks) > 1 or again == {*before[-len(again) :]})
            numbers = {"again": len(again), "of": len(old), "sample": min(again)}
            yield AuditFinding("resume-behind" if behind else "resume-repeats", name, numbers)
