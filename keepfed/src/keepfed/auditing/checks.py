"""Check the records of all epochs, loaders and ranks. A finding is data: an ID, and numbers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, pairwise
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keepfed.auditing.record import MAX_SAMPLES, Draws, EpochRecord, LoaderRecord
from keepfed.auditing.report import AuditFinding, AuditReport
from keepfed.auditing.samples import UNSEEN
from keepfed.formatting import plural

FEW = 32  # minimum number of samples to compare two orders, workers or loaders
SAME = 0.9  # share of samples in common above which two workers or ranks serve the same
SURE = 8  # new samples with NaN, of which a few may come from random crops; samples of one class
CHANCE = 1e-4  # probability below which a late first NaN is not a matter of chance
LEAK = 0.01  # share of samples in common above which two loaders share samples

Findings = Iterator[AuditFinding]


def check(
    records: Sequence[LoaderRecord],
    more: Iterable[AuditFinding] = (),
    *,
    validates: bool = False,
    allow: Collection[str] = (),
    unchecked: Iterable[str] = (),
) -> AuditReport:
    """Check the loaders of all ranks, and report the findings together with `more`.

    Args:
        records: Records, of which those of one place in the program share a name.
        more: Further findings.
        validates: Whether the second loader is the validation. Samples in both are then a fault.
        allow: IDs of findings that are meant, and not reported.
        unchecked: Further parts of the training that were not checked.
    """
    _find_training(records)
    findings = [one for record in records for check in LOADER_CHECKS for one in check(record)]
    findings += [*_ranks(records), *_shared_samples(records, validates), *more]
    first = dict[tuple[str, str], AuditFinding]()
    for finding in findings:  # the first epoch and rank that show it are enough
        if finding.id not in allow:
            first.setdefault((finding.id, finding.loader), finding)
    loops = defaultdict[str, list[LoaderRecord]](list)
    for record in records:
        loops[record.loop].append(record)
    several = len({record.base[1] for record in records}) > 1
    gaps = defaultdict[str, list[str]](list)
    for loop, alike in loops.items():
        for reason in dict.fromkeys(reason for record in alike for reason in _gaps(record)):
            gaps[reason].append(loop)
        if several and not any(e.has_prints for record in alike for e in record.epochs):
            gaps["contents, because no epoch ran when there was other data"].append(loop)
    gaps_of = (f"{reason} ({', '.join(names)})" for reason, names in gaps.items())
    checked = tuple(_checked(loop, alike) for loop, alike in loops.items())
    return AuditReport(tuple(first.values()), checked, (*gaps_of, *unchecked))


def _find_training(records: Sequence[LoaderRecord]) -> None:
    """Decide which epochs are training: in a process with an optimizer, those with its steps.

    Many programs disable gradients inside the loop of an evaluation, where an audit cannot see it.
    """
    steps = {record.base[0] for record in records if any(e.stepped for e in record.epochs)}
    for record in records:
        for epoch in record.epochs if record.base[0] in steps else ():
            epoch.training = epoch.stepped


def _checked(loop: str, records: Sequence[LoaderRecord]) -> str:
    epochs = [epoch for record in records for epoch in record.epochs]
    samples = plural(sum(int(epoch.sizes.sum()) - epoch.dropped for epoch in epochs), "sample")
    loaders, ranks = len({one.name for one in records}), len({one.rank for one in records})
    several = f" ({loaders} loaders)" if loaders > 1 else ""
    several += f" on {ranks} ranks" if ranks > 1 else ""
    return f"{samples} in {plural(len(epochs), 'epoch')} of {loop}{several}"


def _gaps(record: LoaderRecord) -> Iterator[str]:
    epochs = record.epochs
    if len(epochs) < 2:
        yield "changes between epochs, because only one ran"
    if not any(epoch.expected for epoch in epochs):
        yield "whether samples are left out, because their number is unknown"
    if any(len(epoch.reports) < epoch.batches for epoch in epochs):
        yield f"some batches, such as those after {MAX_SAMPLES:,} samples"


def _finding(
    id: str, record: LoaderRecord, epoch: EpochRecord | None, **numbers: Any
) -> AuditFinding:
    place = {"rank": record.rank} if record.ranks > 1 else {}
    return AuditFinding(
        id, record.name, place | ({"epoch": epoch.number} if epoch else {}) | numbers
    )


def _each_once(record: LoaderRecord) -> Findings:
    """Find samples that come several times in an epoch, or not at all."""
    for epoch in record.epochs:
        if dropped := epoch.dropped:
            of, nones = int(epoch.sizes.sum()), sum(report.nones for report in epoch.reports)
            yield _finding("dropped", record, epoch, out=of - dropped, of=of, none=nones)
        if not epoch.known or record.draws_again:
            continue
        ids, counts = np.unique(epoch.ids, return_counts=True)
        again = ids[counts > 1]
        if len(again) >= record.ranks:  # a DistributedSampler repeats fewer, to fill up its share
            places = np.flatnonzero(epoch.ids == again[0])[:2]
            first, second = np.searchsorted(np.cumsum(epoch.sizes), places, side="right").tolist()
            numbers = {"again": len(again), "sample": int(again[0])}
            yield _finding("repeats", record, epoch, **numbers, first=first, second=second)
        spare = record.batch_size - 1 if record.drop_last else 0
        if epoch.complete and (epoch.expected or 0) - spare > len(ids):
            yield _finding("left-out", record, epoch, served=len(ids), of=epoch.expected)


def _unused(record: LoaderRecord) -> Findings:
    """Find a loader that no epoch uses to its end, such as the longer one in a `zip`."""
    epochs = [epoch for epoch in record.epochs if epoch.known and not epoch.complete]
    if not epochs or len(epochs) < len(record.epochs) or record.draws_again:
        return
    of = min(record.total or 0, epochs[0].expected or 0)
    if (served := len(np.unique(np.concatenate([epoch.ids for epoch in epochs])))) < of:
        yield _finding("unused", record, None, served=served, of=of, epochs=len(epochs))


def _one_class(record: LoaderRecord) -> Findings:
    """Find batches of a training in which all samples have one label, although there are more."""
    for epoch in record.training:
        batches = [report for report in epoch.reports if report.size >= SURE]
        labels = [report.label for report in batches if report.label is not None]
        alone, of, classes = len(labels), len(batches), len({*labels})
        if 2 * alone > of and classes > 1:
            yield _finding("one-class", record, epoch, alone=alone, batches=of, classes=classes)


def _overlap(served: Mapping[int, NDArray[Any]], spare: int) -> tuple[dict[str, int], bool] | None:
    """Find two workers or ranks that serve the same samples.

    No intention explains it if the order is the same, or if each serves all samples once, but for
    `spare` ones. Otherwise both draw from all data, and some samples several times.
    """
    for (one, mine), (other, theirs) in combinations(served.items(), 2):
        count, shared = min(len(mine), len(theirs)), len(np.intersect1d(mine, theirs))
        distinct = len(np.unique(mine)), len(np.unique(theirs))
        in_order = np.array_equal(mine[:count], theirs[:count])
        if min(distinct) >= FEW and (in_order or shared > SAME * min(distinct)):
            once = max(len(mine) - distinct[0], len(theirs) - distinct[1]) <= spare
            return {"one": one, "other": other, "shared": shared}, in_order or once
    return None


def _workers(record: LoaderRecord) -> Findings:
    """Find streams in which workers serve the same samples."""
    for epoch in record.epochs if record.total is None else ():
        workers = np.repeat([report.worker for report in epoch.reports], epoch.sizes)
        ids, known = epoch.ids, epoch.ids != UNSEEN
        served = {int(n): ids[(workers == n) & known] for n in np.unique(workers)}
        if overlap := _overlap(served, 0):
            id = "workers-overlap" if overlap[1] else "workers-draw-all"
            yield _finding(id, record, epoch, **overlap[0])


def _order(record: LoaderRecord) -> Findings:
    """Find an order that is the same in two epochs of a training, and `itertools.cycle`."""
    numbers = {epoch.order_epoch for epoch in record.training}
    for one, other in pairwise(record.training):
        count = min(len(one.ids), len(other.ids))
        same = np.array_equal(one.ids[:count], other.ids[:count])
        if not same or len(np.unique(one.ids[:count])) < FEW:
            continue
        if len(numbers) == 1 and one.order_epoch is not None:
            epochs = len(record.training)
            yield _finding("no-set-epoch", record, None, epochs=epochs, number=one.order_epoch)
        else:
            yield _finding("same-order", record, None, one=one.number, other=other.number)
    if any(epoch.cycled for epoch in record.training):
        yield _finding("cycle", record, None)


def _random_numbers(record: LoaderRecord) -> Findings:
    """Find generators that draw the same numbers in several workers or epochs of a training."""
    # the workers of a stream may shuffle alike, and then each takes its share
    id = "same-stream-numbers" if record.total is None else "same-random-numbers"
    earlier = dict[int, list[Draws]]()
    for epoch in record.training:
        draws = defaultdict[int, list[Draws]](list)
        for report in epoch.reports:
            draws[report.worker] += [report.draws] if report.draws else []
        for one, other in combinations(sorted(draws), 2):
            if _draw_alike(draws[one], draws[other]):
                yield _finding(id, record, epoch, one=one, other=other)
        for worker in sorted(draws.keys() & earlier.keys()):
            if _draw_alike(draws[worker], earlier[worker]):
                yield _finding("same-random-epochs", record, epoch, worker=worker)
        earlier = draws


def _draw_alike(mine: Sequence[Draws], theirs: Sequence[Draws]) -> bool:
    """Return whether a generator draws the same numbers in both, for different samples."""
    pairs = [pair for pair in zip(mine, theirs, strict=False) if pair[0].ids != pair[1].ids]
    alike = [{generator for generator, *_ in a.moved & b.moved} for a, b in pairs]
    return len(alike) > 1 and bool(set.intersection(*alike))


def _state(record: LoaderRecord) -> Findings:
    """Find epoch numbers that never arrive, memory that is written again, and shared files."""
    for epoch in record.epochs:
        for report in {report.worker: report for report in epoch.reports}.values():  # the latest
            for name, copy in report.epochs.items():
                if copy < (main := epoch.dataset_epochs.get(name, copy)):
                    numbers = {"name": name, "main": main, "worker": report.worker, "copy": copy}
                    yield _finding("stale-epoch", record, epoch, **numbers)
        for path in {report.moved_file for report in epoch.reports if report.moved_file}:
            yield _finding("shared-file", record, None, path=path)
    if changed := sum(epoch.changed for epoch in record.epochs):
        batches = sum(epoch.batches for epoch in record.epochs)
        yield _finding("memory-changes", record, None, changed=changed, batches=batches)


def _nan(record: LoaderRecord) -> Findings:
    """Find NaN. It may mark missing values, but then it does not begin while a training runs."""
    clean = damaged = np.array([], np.int64)  # samples of the epochs before
    for epoch in record.epochs if any(r.nan for e in record.epochs for r in e.reports) else ():
        nans = [(n, report, report.nan) for n, report in enumerate(epoch.reports) if report.nan]
        now = np.array([report.ids[row] for _, report, nan in nans for row in nan.rows], np.int64)
        new = np.intersect1d(now, clean)
        healed = np.setdiff1d(np.intersect1d(damaged, epoch.ids), now)
        clean = np.union1d(clean, np.setdiff1d(epoch.ids, now))
        damaged = np.union1d(damaged, now)
        if len(new) >= SURE and not len(healed):
            yield _finding("new-nan", record, epoch, samples=len(new), sample=int(new[0]))
        elif nans:
            (first, report, nan), batches = nans[0], len(epoch.reports)
            by_chance = comb(batches - first, len(nans)) / comb(batches, len(nans))
            late = epoch.shuffled and epoch.number == 0 and by_chance < CHANCE
            numbers = nan._asdict() | {"nans": len(nans), "batches": batches, "first": first}
            numbers["rows"] = ", ".join(str(report.ids[row]) for row in nan.rows[:4])
            yield _finding("late-nan" if late else "nan", record, epoch, **numbers)


LOADER_CHECKS = _workers, _random_numbers, _state, _nan, _each_once, _unused, _one_class, _order


def _ranks(records: Sequence[LoaderRecord]) -> Findings:
    """Find ranks that serve the same samples in training, or different numbers of batches."""
    for name in dict.fromkeys(record.name for record in records if record.ranks > 1):
        ranks = sorted((one for one in records if one.name == name), key=lambda one: one.rank)
        for epochs in zip(*(record.epochs for record in ranks), strict=False):
            if not all(epoch.training for epoch in epochs):
                continue
            number = {"epoch": epochs[0].number}
            served = {one.rank: epoch.ids for one, epoch in zip(ranks, epochs, strict=True)}
            if overlap := _overlap(served, len(ranks)):
                fault = overlap[1] and ranks[0].groups == 1
                id = "ranks-overlap" if fault else "ranks-draw-all"
                yield AuditFinding(id, name, number | overlap[0])
            counts = [epoch.batches for epoch in epochs]
            if all(epoch.complete for epoch in epochs) and len({*counts}) > 1:
                numbers = number | {"least": min(counts), "most": max(counts)}
                yield AuditFinding("uneven-ranks", name, numbers)


def _shared_samples(records: Sequence[LoaderRecord], validates: bool) -> Findings:
    """Find loaders that share samples with a training one, by row or content, as one finding."""
    pairs = list[tuple[int, int, str, str]]()
    training = [record for record in records if record.training]
    others = [record for record in records if record.epochs and not record.training]
    for one, other in ((one, other) for one in training for other in others):
        if (one.rank, one.base[0]) != (other.rank, other.base[0]) or one.loader == other.loader:
            continue
        by_row = one.base == other.base
        mine = np.unique(np.concatenate([_samples(one, epoch, by_row) for epoch in one.epochs]))
        # an augmented sample has another content in every epoch, so one epoch of the other counts
        theirs = max((np.unique(_samples(other, epoch, by_row)) for epoch in other.epochs), key=len)
        shared = len(np.intersect1d(mine, theirs))
        if shared > LEAK * len(theirs) and len(theirs) >= FEW:
            pairs.append((shared, len(theirs), one.name, other.name))
    if pairs:
        shared, of, name, other_name = max(pairs)
        more = f". So it is with {plural(len(pairs) - 1, 'more pair')} of loaders"
        numbers = {"shared": shared, "of": of, "other": other_name, "more": more * (len(pairs) > 1)}
        yield AuditFinding("leak" if validates else "shared-samples", name, numbers)


def _samples(record: LoaderRecord, epoch: EpochRecord, by_row: bool) -> NDArray[np.int64]:
    """Return the samples of an epoch by content, or by row of the dataset below all subsets."""
    if not by_row:
        return epoch.prints
    rows = epoch.ids if epoch.known else epoch.ids[:0]
    return rows if record.subset is None else record.subset[rows]


def check_resume(before: Sequence[Mapping[str, Any]], records: Sequence[LoaderRecord]) -> Findings:
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
            yield AuditFinding("resume-starts-over", name, {"again": len(again)})
            continue
        complete = all(one.epochs[0].complete for one in ranks)
        missing = 0 if total is None or not complete else total - len(old | new)
        if missing > (ranks[0].batch_size * len(ranks) if ranks[0].drop_last else 0):
            yield AuditFinding("resume-skips", name, {"missing": missing, "of": total})
        if again:
            behind = len(ranks) > 1 or again == {*served[-len(again) :]}
            numbers = {"again": len(again), "sample": min(again)}
            yield AuditFinding("resume-behind" if behind else "resume-repeats", name, numbers)
