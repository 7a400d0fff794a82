"""Check the records of all epochs, loaders and ranks, and describe each finding with its evidence.

A finding is a fault only if no intention explains it. Many right trainings repeat samples, leave
some out, or repeat their order. Such findings are facts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keepfed.auditing.record import MAX_SAMPLES, UNSEEN, Audited, Draws, EpochRecord
from keepfed.auditing.report import AuditFinding, AuditReport
from keepfed.auditing.samples import Damage
from keepfed.formatting import percent, plural
from keepfed.measure.records import MAIN

FEW = 32  # minimum number of samples to check an order or a share
SAME = 0.9  # share of samples in common above which two workers or ranks serve the same
ONE_CLASS = 0.5  # maximum share of batches with a single class
RARE = 0.25  # maximum share of batches with NaN that are damage and not a code for missing values
CHANCE = 0.01  # probability below which a late first NaN is not a matter of chance

Findings = Iterator[AuditFinding]


def check(
    loaders: Sequence[Audited],
    more: Iterable[AuditFinding] = (),
    *,
    validates: bool = False,
    unchecked: Iterable[str] = (),
) -> AuditReport:
    """Check the loaders of all ranks, and report the findings together with `more`.

    Args:
        loaders: Records, of which those of one place in the program share a name.
        more: Further findings.
        validates: Whether the second loader is the validation of the first, so that samples in both
            are a fault. Otherwise it may be an evaluation of the training data.
        unchecked: Further parts of the training that were not checked.
    """
    _find_training(loaders)
    findings = [one for audited in loaders for check in LOADER_CHECKS for one in check(audited)]
    findings += [*_ranks(loaders), *_shared_samples(loaders, validates), *more]
    first: dict[tuple[str, tuple[str, ...]], AuditFinding] = {}
    for finding in findings:  # the first epoch and rank that show it are enough
        first.setdefault((finding.kind, finding.loaders), finding)
    return AuditReport(
        tuple(first.values()), tuple(_checked(loaders)), (*_unchecked(loaders), *unchecked)
    )


def _find_training(loaders: Sequence[Audited]) -> None:
    """Decide which epochs are training: in a process with an optimizer, those with its steps.

    Many programs disable gradients inside the loop of an evaluation, where an audit cannot see it.
    """
    processes = defaultdict[int, list[EpochRecord]](list)
    for audited in loaders:
        processes[audited.base[0]] += audited.epochs
    for epochs in processes.values():
        if any(epoch.stepped for epoch in epochs):
            for epoch in epochs:
                epoch.training = epoch.stepped


def _checked(loaders: Sequence[Audited]) -> Iterator[str]:
    loops = defaultdict[str, list[Audited]](list)
    for audited in loaders:
        loops[audited.loop].append(audited)
    for loop, alike in loops.items():
        epochs = [epoch for audited in alike for epoch in audited.epochs]
        samples = plural(sum(len(epoch.prints) for epoch in epochs), "sample")
        count, ranks = len({one.name for one in alike}), len({one.rank for one in alike})
        several = f" ({count} loaders)" if count > 1 else ""
        several += f" on {ranks} ranks" if ranks > 1 else ""
        yield f"{samples} in {plural(len(epochs), 'epoch')} of {loop}{several}"


def _unchecked(loaders: Sequence[Audited]) -> Iterator[str]:
    reasons = defaultdict[str, list[str]](list)
    for audited in loaders:
        epochs = audited.epochs
        reason = {
            "whether all samples came, because no epoch was complete": not any(
                epoch.complete for epoch in epochs
            ),
            "whether samples are left out, because the length is unknown": not any(
                epoch.expected for epoch in epochs
            ),
            "changes between epochs, because only one ran": len(epochs) < 2,
            f"batches after the first {MAX_SAMPLES:,} samples": any(e.unrecorded for e in epochs),
            "the content of some samples, to keep the training fast": any(
                UNSEEN in epoch.prints for epoch in epochs
            ),
            "batches that came without a description": any(epoch.unknown for epoch in epochs),
        }
        for text in (text for text, applies in reason.items() if applies):
            reasons[text].append(audited.loop)
    for text, loops in reasons.items():
        yield f"{text} ({', '.join(dict.fromkeys(loops))})"


def ids_of(epoch: EpochRecord) -> NDArray[Any]:
    """Return the identities of the samples of an epoch: indices, or fingerprints of a stream."""
    return np.asarray(epoch.prints if epoch.indices is None else epoch.indices)


# --- One loader -----------------------------------------------------------------------------------


def _finding(
    kind: str, audited: Audited, says: str, epoch: EpochRecord | None = None
) -> AuditFinding:
    rank = f", rank {audited.rank}" if audited.ranks > 1 else ""
    number = f", epoch {epoch.number}" if epoch else ""
    return AuditFinding(kind, (audited.name,), f"{audited.name}{rank}{number}: {says}.")


def _not_each_once(audited: Audited) -> Findings:
    """Find samples that are served several times in an epoch, or not at all."""
    for epoch in audited.epochs:
        if epoch.indices is None or epoch.unknown or audited.draws_again:
            continue
        ids, counts = np.unique(epoch.indices, return_counts=True)
        again, missing = ids[counts > 1], 0
        if audited.ranks > 1 and len(again) < audited.ranks:
            continue  # a DistributedSampler repeats some samples, so that all ranks have as many
        if epoch.complete and not epoch.unrecorded and epoch.expected is not None:
            missing = epoch.expected - len(ids)
        if missing <= (audited.batch_size - 1 if audited.drop_last else 0):
            missing = 0
        if not len(again) and not missing:
            continue
        says = f"{plural(len(epoch.indices), 'sample')} came, {len(ids):,} different ones"
        says += f" of {epoch.expected:,}" if missing else ""
        if epoch.dropped:
            says += f"; the dataset returned None for {plural(epoch.dropped, 'sample')}"
        if len(again):
            places = np.flatnonzero(np.asarray(epoch.indices) == again[0])[:2]
            batches = np.searchsorted(np.cumsum(epoch.sizes), places, side="right")
            says += f"; sample {again[0]} came in batches {batches[0]} and {batches[1]}"
        yield _finding("not each once", audited, says, epoch)


def _same_streams(served: Mapping[int, NDArray[Any]], spare: int) -> tuple[str, bool] | None:
    """Find two workers or ranks that serve the same samples.

    Args:
        served: Samples in the order in which each worker or rank serves them.
        spare: Number of samples that may come twice.

    Returns:
        What was seen, and whether no intention explains it: the order is the same, or each serves
        all samples once. Otherwise both draw from all data, and some samples several times.
    """
    for (one, mine), (other, theirs) in combinations(served.items(), 2):
        count, both = min(len(mine), len(theirs)), np.intersect1d(mine, theirs)
        distinct = len(np.unique(mine)), len(np.unique(theirs))
        if min(distinct) < FEW:
            continue
        ordered = np.array_equal(mine[:count], theirs[:count])
        if ordered or len(both) > SAME * min(distinct):
            once = max(len(mine) - distinct[0], len(theirs) - distinct[1]) <= spare
            return f"{one} and {other} serve {len(both)} samples in common", ordered or once
    return None


def _workers_alike(audited: Audited) -> Findings:
    """Find streams in which workers serve the same samples."""
    for epoch in (epoch for epoch in audited.epochs if epoch.indices is None):
        workers, prints = np.repeat(epoch.workers, epoch.sizes), np.asarray(epoch.prints)
        own = {worker: prints[workers == worker] for worker in sorted({*epoch.workers})}
        if same := _same_streams(own, 0):
            kind = "workers overlap" if same[1] else "workers draw from all"
            yield _finding(kind, audited, f"workers {same[0]}", epoch)


def _one_class(audited: Audited) -> Findings:
    """Find training batches that contain one class only, although there are several."""
    for epoch in audited.epochs:
        labels = epoch.labels
        if not epoch.training or len(labels) != sum(epoch.sizes) or None in labels:
            continue
        counts = Counter(labels)
        if len(labels) < FEW or len(counts) < 2 or len(counts) > len(labels) / 4:
            continue
        ends = np.cumsum(epoch.sizes)
        parts = [(end - size, end) for size, end in zip(epoch.sizes, ends, strict=True) if size > 1]
        alone = sum(len({*labels[begin:end]}) == 1 for begin, end in parts)
        # the share of such batches in a full shuffle
        largest = max(counts.values()) / len(labels)
        expected = float(np.mean([largest ** (end - begin - 1) for begin, end in parts] or [1.0]))
        if len(parts) >= 4 and alone > (ONE_CLASS + expected) / (1 + expected) * len(parts):
            says = f"{alone} of {len(parts)} batches contain only one of {len(counts)} classes"
            chance = f". By chance it would be {percent(expected)}"
            yield _finding("not mixed", audited, says + chance, epoch)


def _damaged(audited: Audited) -> Findings:
    """Find an array with numbers that are not finite.

    NaN is damage if it is rare, or if too many batches without any come before the first one. Some
    datasets have NaN for each missing value, or infinite numbers in their masks.
    """
    batches = sum(len(epoch.sizes) for epoch in audited.epochs)
    arrays = defaultdict[tuple[bool, int], list[tuple[int, EpochRecord, int, Damage]]](list)
    before = 0
    for epoch in audited.epochs:
        for number, damage in epoch.damage:
            key = not damage.nans, damage.place
            arrays[key].append((before + number, epoch, number, damage))
        before += len(epoch.sizes)
    for (infinite, place), damaged in sorted(arrays.items())[:1]:
        first, epoch, number, damage = damaged[0]
        late = (1 - len(damaged) / (batches - first)) ** first < CHANCE
        fault = not infinite and (late or len(damaged) <= RARE * batches)
        begin = int(np.sum(epoch.sizes[:number]))
        samples = ids_of(epoch)[begin : begin + min(4, epoch.sizes[number])]
        says = (
            f"in batch {number} (samples {', '.join(map(str, samples))}, ...), {damage.bad} of "
            f"{damage.size} numbers of array {place} are {'infinite' if infinite else 'NaN'}, and "
            f"in {len(damaged):,} of {plural(batches, 'batch')} some are"
        )
        yield _finding("damaged" if fault else "not finite", audited, says, epoch)


def _changing_dtype(audited: Audited) -> Findings:
    for epoch in audited.epochs:
        if len(epoch.forms) > 1:
            (first, _), (other, number), *_ = epoch.forms.items()
            says = f"batch {number} has the dtypes {other}, and the first has {first}"
            yield _finding("changing dtype", audited, says, epoch)


def _same_order(audited: Audited) -> Findings:
    """Find an order that is the same in two epochs of a training."""
    for one, other in pairwise(audited.epochs):
        if not (one.training and other.training) or one.indices is None or other.indices is None:
            continue
        first, second = np.asarray(one.indices), np.asarray(other.indices)
        count = min(len(first), len(second))
        if count < FEW or not np.array_equal(first[:count], second[:count]):
            continue
        begins = f"beginning with samples {', '.join(map(str, first[:4]))}"
        how = "that of the dataset" if (np.diff(first) > 0).all() else begins
        says = f"epochs {one.number} and {other.number} serve the same order, {how}"
        if one.sampler_epoch is None or one.sampler_epoch != other.sampler_epoch:
            yield _finding("same order", audited, says)
        else:
            told = f". Its DistributedSampler is at epoch {one.sampler_epoch} in both"
            yield _finding("no set_epoch", audited, says + told)


def _same_random_numbers(audited: Audited) -> Findings:
    """Find generators that draw the same numbers in several workers or epochs of a training."""
    training = [epoch for epoch in audited.epochs if epoch.training]
    pairs = [
        (f"workers {one} and {other} in epoch {epoch.number}", mine, theirs)
        for epoch in training
        for (one, mine), (other, theirs) in combinations(sorted(epoch.fetches.items()), 2)
    ] + [
        (f"epochs {one.number} and {other.number}", one.fetches[worker], other.fetches[worker])
        for one, other in pairwise(training)
        for worker in sorted({*one.fetches} & {*other.fetches} - {MAIN})
    ]
    for where, mine, theirs in pairs:
        if _draw_alike(mine, theirs):
            says = f"a generator in the dataset draws the same numbers in {where}"
            why = ", so its augmentations repeat. Each new worker gets a copy of the generator"
            yield _finding("same random numbers", audited, says + why)


def _draw_alike(mine: Sequence[Draws], theirs: Sequence[Draws]) -> bool:
    """Return whether two fetches each draw the same numbers, for different samples.

    In a stream, all workers may shuffle the shards alike in the first fetch.
    """
    pairs = [*zip(mine, theirs, strict=False)]
    return len(pairs) > 1 and all(
        one.before != one.after and one[:2] == other[:2] and one.ids != other.ids
        for one, other in pairs
    )


def _cycled(audited: Audited) -> Findings:
    if any(epoch.cycled and epoch.training for epoch in audited.epochs):
        says = "`itertools.cycle` keeps all batches of the first epoch, and serves them again"
        how = " in the same order with the same augmentations"
        yield _finding("repeated epoch", audited, says + how)


def _stale_epoch(audited: Audited) -> Findings:
    """Find workers that never receive the epoch number."""
    for epoch in audited.epochs:
        told = epoch.dataset_epoch or 0
        for worker, number in epoch.worker_epochs.items():
            if number < told:
                says = f"the dataset is at epoch {told}, but its copy in worker {worker} is at "
                yield _finding("stale epoch", audited, f"{says}epoch {number}", epoch)


LOADER_CHECKS: tuple[Callable[[Audited], Findings], ...] = (
    _workers_alike,
    _same_random_numbers,
    _stale_epoch,
    _damaged,
    _not_each_once,
    _same_order,
    _cycled,
    _one_class,
    _changing_dtype,
)

# --- Several loaders and ranks --------------------------------------------------------------------


def _ranks(loaders: Sequence[Audited]) -> Findings:
    """Find ranks that serve the same samples in training, or different numbers of batches."""
    for name in dict.fromkeys(audited.name for audited in loaders if audited.ranks > 1):
        ranks = sorted((one for one in loaders if one.name == name), key=lambda one: one.rank)
        for epochs in zip(*(audited.epochs for audited in ranks), strict=False):
            if not all(epoch.training for epoch in epochs):
                continue
            where = f"{name}, epoch {epochs[0].number}"
            served = {one.rank: ids_of(epoch) for one, epoch in zip(ranks, epochs, strict=True)}
            if same := _same_streams(served, len(ranks)):
                fault = same[1] and ranks[0].groups == 1
                kind = "ranks overlap" if fault else "ranks draw from all"
                yield AuditFinding(kind, (name,), f"{where}: ranks {same[0]}.")
            counts = [epoch.batches for epoch in epochs]
            if all(epoch.complete for epoch in epochs) and len({*counts}) > 1:
                says = f"{where}: the ranks serve {', '.join(map(str, counts))} batches."
                yield AuditFinding("uneven ranks", (name,), says)


def _shared_samples(loaders: Sequence[Audited], validates: bool) -> Findings:
    """Find samples that a training loader shares with another one: by row, or by content."""
    training = [one for one in loaders if any(epoch.training for epoch in one.epochs)]
    others = [one for one in loaders if one.epochs and one not in training]
    for one, other in ((one, other) for one in training for other in others):
        same_process = (one.rank, one.base[0]) == (other.rank, other.base[0])
        if not same_process or one.loader == other.loader:
            continue
        by_row = one.base == other.base
        get = _rows if by_row else _contents
        # an augmented sample has another content in every epoch, so one epoch of the other counts
        mine, theirs = np.unique(np.concatenate(get(one))), np.unique(max(get(other), key=len))
        both = len(np.intersect1d(mine, theirs))
        if both <= 0.01 * len(theirs) or len(theirs) < FEW:
            continue
        unseen = any(UNSEEN in epoch.prints for epoch in (*one.epochs, *other.epochs))
        vague = not by_row and (unseen or len(mine) > (one.total or len(mine)))
        yield AuditFinding(
            "leak" if validates else "shared samples",
            (one.name, other.name),
            f"{one.name} and {other.name} share {'at least ' if vague else ''}{both} of "
            f"{len(theirs)} samples of the second.",
        )


def _rows(audited: Audited) -> list[NDArray[Any]]:
    """Return the rows of the dataset below all subsets that each epoch of a loader served."""
    known = (epoch.indices for epoch in audited.epochs if epoch.indices is not None)
    rows = [np.array([], dtype=np.int64), *map(np.asarray, known)]
    return rows if audited.subset is None else [np.asarray(audited.subset)[row] for row in rows]


def _contents(audited: Audited) -> list[NDArray[Any]]:
    """Return the known fingerprints of the samples of each epoch."""
    prints = [np.array([], dtype=np.uint64), *(np.asarray(e.prints) for e in audited.epochs)]
    return [one[one != UNSEEN] for one in prints]
