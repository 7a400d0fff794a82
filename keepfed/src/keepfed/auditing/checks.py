"""Check the records of all epochs, loaders and ranks. A finding is data: an ID, and numbers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keepfed.auditing.record import MAX_SAMPLES, UNSEEN, Draws, EpochRecord, LoaderRecord
from keepfed.auditing.report import AuditFinding, AuditReport
from keepfed.formatting import plural

FEW = 32  # minimum number of samples to compare two orders, workers or loaders
SAME = 0.9  # share of samples in common above which two workers or ranks serve the same
SURE = 8  # new samples with NaN, of which a few may come from random crops
LEAK = 0.01  # share of samples in common above which two loaders share samples

Findings = Iterator[AuditFinding]
Records = Sequence[LoaderRecord]


def check(
    records: Records,
    more: Iterable[AuditFinding] = (),
    *,
    allow: Collection[str] = (),
    unchecked: Iterable[str] = (),
) -> AuditReport:
    """Check the loaders of all ranks, and report the findings together with `more`.

    Args:
        records: Records, of which those of one place in the program share a name.
        more: Further findings.
        allow: IDs of findings that are meant, and not reported.
        unchecked: Further parts of the training that were not checked.
    """
    _find_training(records)
    findings = [one for record in records for check in CHECKS for one in check(record, records)]
    first = dict[tuple[str, str], AuditFinding]()
    for finding in (*findings, *more):  # the first epoch and rank that show it are enough
        if finding.id not in allow:
            first.setdefault((finding.id, finding.loader), finding)
    checked, gaps = list[str](), defaultdict[str, list[str]](list)
    for name in dict.fromkeys(record.name for record in records):
        ranks = [record for record in records if record.name == name]
        for reason in _gaps(ranks[0]):
            gaps[reason].append(name)
        epochs = [epoch for record in ranks for epoch in record.epochs]
        samples = plural(sum(int(epoch.sizes.sum()) - epoch.dropped for epoch in epochs), "sample")
        on = f" on {len(ranks)} ranks" if len(ranks) > 1 else ""
        checked.append(f"{samples} in {plural(len(epochs), 'epoch')} of {name}{on}")
    gaps_of = (f"{gap} ({', '.join(names)})" for gap, names in gaps.items())
    faults_first = sorted(first.values(), key=lambda finding: not finding.kind.fault)
    return AuditReport(tuple(faults_first), tuple(checked), (*gaps_of, *unchecked))


def _find_training(records: Records) -> None:
    """Decide which epochs are training: in a process with an optimizer, those with its steps.

    Many programs disable gradients inside the loop of an evaluation, where an audit cannot see it.
    """
    steps = {record.base[0] for record in records if any(e.stepped for e in record.epochs)}
    for record in records:
        for epoch in record.epochs if record.base[0] in steps else ():
            epoch.training = epoch.stepped


def _gaps(record: LoaderRecord) -> Iterator[str]:
    if len(record.training) == 1:
        yield "changes between epochs, because only one ran"
    if not any(epoch.expected for epoch in record.epochs):
        yield "whether samples are left out, because their number is unknown"
    if any(len(epoch.reports) < epoch.batches for epoch in record.epochs):
        yield f"some batches, such as those after {MAX_SAMPLES:,} samples"
    if record.recorded and not len(record.epochs[0].prints):
        yield "contents, because their type is unknown"


def _finding(
    id: str, record: LoaderRecord, epoch: EpochRecord | None, **numbers: Any
) -> AuditFinding:
    place = {"rank": record.rank} if record.ranks > 1 else {}
    return AuditFinding(
        id, record.name, place | ({"epoch": epoch.number} if epoch else {}) | numbers
    )


def _each_once(record: LoaderRecord, records: Records) -> Findings:
    """Find samples that come several times in an epoch, or not at all."""
    for epoch in record.epochs:
        if dropped := epoch.dropped:
            of, nones = int(epoch.sizes.sum()), sum(report.nones for report in epoch.reports)
            yield _finding("dropped", record, epoch, out=of - dropped, of=of, none=nones)
        if not epoch.known or record.draws_again:
            continue
        ids, counts = np.unique(epoch.ids, return_counts=True)
        again = ids[counts > 1]
        # the samplers of ranks repeat some, so that all ranks have full batches
        if len(again) > (epoch.sizes.max() if record.ranks > 1 else 0):
            yield _finding("repeats", record, epoch, again=len(again), sample=int(again[0]))
        of = min(record.total or 0, epoch.expected or 0)  # a sampler may repeat all samples
        if epoch.complete and of - record.spare > len(ids):
            yield _finding("left-out", record, epoch, served=len(ids), of=of)


def _overlap(served: Mapping[int, NDArray[Any]], spare: int) -> dict[str, int] | None:
    """Find two workers or ranks that serve the same samples, which no intention explains.

    The order is the same, or each serves its samples once, but for `spare` ones. Otherwise both
    draw from all data.
    """
    for (one, mine), (other, theirs) in combinations(served.items(), 2):
        count, shared = min(len(mine), len(theirs)), len(np.intersect1d(mine, theirs))
        distinct = len(np.unique(mine)), len(np.unique(theirs))
        in_order = np.array_equal(mine[:count], theirs[:count])
        once = max(len(mine) - distinct[0], len(theirs) - distinct[1]) <= spare
        alike = in_order or (once and shared > SAME * min(distinct))
        if alike and min(distinct) >= FEW:
            return {"one": one, "other": other, "shared": shared}
    return None


def _workers(record: LoaderRecord, records: Records) -> Findings:
    """Find streams in which workers serve the same samples."""
    for epoch in record.epochs if record.total is None else ():
        workers = np.repeat([report.worker for report in epoch.reports], epoch.sizes)
        ids, known = epoch.ids, epoch.ids != UNSEEN
        served = {int(n): ids[(workers == n) & known] for n in np.unique(workers)}
        if overlap := _overlap(served, 0):
            yield _finding("workers-overlap", record, epoch, **overlap)


def _order(record: LoaderRecord, records: Records) -> Findings:
    """Find an order that is the same in two epochs of a training, and `itertools.cycle`."""
    numbers = {epoch.order_epoch for epoch in record.training}
    for one, other in pairwise(record.training):
        count = min(len(one.ids), len(other.ids))
        same = np.array_equal(one.ids[:count], other.ids[:count])
        if not same or one.batches < 2 or len(np.unique(one.ids[:count])) < FEW:
            continue
        if len(numbers) == 1 and one.order_epoch is not None:
            epochs = len(record.training)
            yield _finding("no-set-epoch", record, None, epochs=epochs, number=one.order_epoch)
        else:
            yield _finding("same-order", record, None, one=one.number, other=other.number)
    if any(epoch.held_by == "cycle" for epoch in record.training):
        yield _finding("cycle", record, None)


def _random_numbers(record: LoaderRecord, records: Records) -> Findings:
    """Find generators that draw the same numbers in several workers or epochs of a training."""
    earlier = dict[int, list[Draws]]()
    for epoch in record.training:
        draws = defaultdict[int, list[Draws]](list)
        for report in epoch.reports:
            draws[report.worker] += [report.draws] if report.draws else []
        for one, other in combinations(sorted(draws), 2):
            # the workers of a stream may shuffle alike, and then each takes its share
            if record.total is not None and _draw_alike(draws[one], draws[other]):
                yield _finding("same-random-numbers", record, epoch, one=one, other=other)
        for worker in sorted(draws.keys() & earlier.keys()):
            if _draw_alike(draws[worker], earlier[worker]):
                yield _finding("same-random-epochs", record, epoch, worker=worker)
        earlier = draws


def _draw_alike(mine: Sequence[Draws], theirs: Sequence[Draws]) -> bool:
    """Return whether a generator draws the same numbers in both, for different samples."""
    pairs = [pair for pair in zip(mine, theirs, strict=False) if pair[0].ids != pair[1].ids]
    alike = [{generator for generator, *_ in a.moved & b.moved} for a, b in pairs]
    return len(alike) > 1 and bool(set.intersection(*alike))


def _state(record: LoaderRecord, records: Records) -> Findings:
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
        yield _finding("memory-changes", record, None, changed=changed)


def _nan(record: LoaderRecord, records: Records) -> Findings:
    """Find NaN. It may mark missing or masked values, but does not begin in a sample and stay."""
    clean, damaged, new, healed = set[int](), set[int](), set[int](), set[int]()
    facts = list[AuditFinding]()
    for epoch in record.epochs if any(r.nans for e in record.epochs for r in e.reports) else ():
        bad = [(n, report) for n, report in enumerate(epoch.reports) if report.nans]
        now = {int(report.ids[row]) for _, report in bad for row in report.nans}
        rest = {*epoch.ids.tolist()} - now
        new, healed = new | (now & clean), healed | (rest & damaged)
        clean, damaged = clean | rest, damaged | now
        if bad:
            numbers = {"nans": len(bad), "batches": len(epoch.reports), "first": bad[0][0]}
            facts.append(_finding("nan", record, epoch, **numbers, sample=min(now)))
    if len(new) >= SURE and not healed:
        yield _finding("new-nan", record, None, samples=len(new), sample=min(new))
    else:
        yield from facts


def _unused(record: LoaderRecord, records: Records) -> Findings:
    """Find a loader that no loop uses to its end, such as the longer one in a `zip`."""
    same = [one for one in records if one.is_in_process_of(record) and one.loader == record.loader]
    epochs = [epoch for epoch in record.epochs if epoch.known and epoch.batches > 1]
    is_used = any(epoch.complete for one in same for epoch in one.epochs)
    if is_used or not epochs or record.draws_again:
        return
    of = min(record.total or 0, epochs[0].expected or 0)
    if (served := len(np.unique(np.concatenate([epoch.ids for epoch in epochs])))) < of:
        zipped = any(epoch.held_by == "zip" for epoch in epochs)
        by = " by a `zip`, which ends with the shorter loader" if zipped else ""
        yield _finding("unused", record, None, served=served, of=of, epochs=len(epochs), by=by)


def _ranks(record: LoaderRecord, records: Records) -> Findings:
    """Find ranks that serve the same samples in training, or different numbers of batches."""
    ranks = sorted((one for one in records if one.name == record.name), key=lambda one: one.rank)
    if record.ranks == 1 or record is not ranks[0]:
        return
    for epochs in zip(*(one.epochs for one in ranks), strict=False):
        if not all(epoch.training for epoch in epochs):
            continue
        number = {"epoch": epochs[0].number}
        served = {one.rank: epoch.ids for one, epoch in zip(ranks, epochs, strict=True)}
        # without a process group, or with several of them, ranks may share samples on purpose
        if record.groups == 1 and (overlap := _overlap(served, len(ranks))):
            yield AuditFinding("ranks-overlap", record.name, number | overlap)
        counts = [epoch.batches for epoch in epochs]
        if all(epoch.complete for epoch in epochs) and len({*counts}) > 1:
            numbers = number | {"least": min(counts), "most": max(counts)}
            yield AuditFinding("uneven-ranks", record.name, numbers)


def _shared_samples(record: LoaderRecord, records: Records) -> Findings:
    """Find loaders that share samples with a training one, by row or content."""
    for other in records if record.training else ():
        is_same = other.loader == record.loader or not other.is_in_process_of(record)
        if is_same or not other.epochs or other.training:
            continue
        by_row = record.base == other.base
        mine = [np.unique(_samples(record, epoch, by_row)) for epoch in record.epochs]
        # an augmented sample has another content in every epoch, so one epoch of the other counts
        theirs = max((np.unique(_samples(other, epoch, by_row)) for epoch in other.epochs), key=len)
        shared, of = len(np.intersect1d(np.concatenate(mine), theirs)), len(theirs)
        if shared > LEAK * of and of >= FEW:
            numbers = {"shared": shared, "of": of, "other": other.name}
            id = "leak" if other.validates else "shared-samples"
            yield AuditFinding(id, record.name, numbers)


def _samples(record: LoaderRecord, epoch: EpochRecord, by_row: bool) -> NDArray[np.int64]:
    """Return the samples of an epoch by content, or by row of the dataset below all subsets."""
    if not by_row:
        return epoch.prints
    rows = epoch.ids if epoch.known else epoch.ids[:0]
    return rows if record.subset is None else record.subset[rows]


CHECKS = (
    _workers, _random_numbers, _state, _nan, _each_once, _order, _unused, _ranks, _shared_samples
)  # fmt: skip
