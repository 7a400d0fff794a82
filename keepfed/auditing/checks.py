"""Check the records of all epochs, loaders and ranks, and describe each fault with its evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keepfed.auditing.record import UNSEEN, Audited, EpochRecord
from keepfed.auditing.report import AuditFinding, AuditReport, name_of
from keepfed.auditing.values import VALUE_CHECKS, check_scales
from keepfed.errors import KeepfedError
from keepfed.formatting import percent, plural

FEW = 32  # minimum number of samples to check an order or a share
SAME_CONTENT = 0.9  # share of equal fingerprints above which two streams serve the same samples
ONE_CLASS = 0.5  # maximum share of batches with a single class
CLUSTERED = 0.4  # minimum mean distance within a batch, compared with a shuffled batch


def check(loaders: Sequence[Audited], more: Iterable[AuditFinding] = ()) -> AuditReport:
    """Check the loaders of all ranks, and report the findings together with `more`.

    The loaders of one place in the program share a name.
    """
    findings = [
        finding
        for audited in loaders
        for one in (*EPOCH_CHECKS, *LOADER_CHECKS)
        for finding in one(audited)
    ]
    findings += [finding for one in PROGRAM_CHECKS for finding in one(loaders)]
    findings += more
    first: dict[tuple[str, str], AuditFinding] = {}
    for finding in findings:  # the first epoch that shows a fault is enough
        first.setdefault((finding.kind, finding.says.split(",")[0]), finding)
    ordered = sorted(first.values(), key=lambda finding: not finding.fault)
    return AuditReport(tuple(ordered), tuple(_checked(loaders)), tuple(_unchecked(loaders)))


def _checked(loaders: Sequence[Audited]) -> Iterator[str]:
    for audited in loaders:
        samples = sum(len(epoch.prints) for epoch in audited.epochs)
        rank = f" of rank {audited.rank}" if audited.ranks > 1 else ""
        yield (
            f"{plural(samples, 'sample')} in {plural(len(audited.epochs), 'epoch')} of "
            f"{audited.name}{rank}"
        )


def _unchecked(loaders: Sequence[Audited]) -> Iterator[str]:
    for audited in loaders:
        if not any(epoch.complete for epoch in audited.epochs):
            yield f"whether {audited.name} serves everything, because no epoch was complete"
        elif audited.expected is None:
            yield f"whether {audited.name} leaves samples out, because its length is unknown"
        if len(audited.epochs) < 2:
            yield f"whether {audited.name} changes between epochs, because it ran only one"
        if any(epoch.thin for epoch in audited.epochs):
            yield f"most samples of {audited.name}, because an epoch has over ten million"
        if any(UNSEEN in epoch.prints for epoch in audited.epochs):
            yield f"the content of some samples of {audited.name}, to keep the training fast"
        if any(epoch.unknown for epoch in audited.epochs):
            yield f"batches of {audited.name} whose workers sent no description"


def _ids(epoch: EpochRecord) -> NDArray[Any]:
    """Return the identities of the samples of an epoch: indices, or fingerprints of a stream."""
    return np.asarray(epoch.prints if epoch.indices is None else epoch.indices)


def _batch_of(epoch: EpochRecord, place: int) -> int:
    """Return the number of the batch that contains the sample at `place` of the epoch."""
    return int(np.searchsorted(np.cumsum(epoch.sizes), place, side="right"))


# --- One epoch ------------------------------------------------------------------------------------


def _repeated(audited: Audited) -> Iterator[AuditFinding]:
    """Find samples that are served twice in an epoch, or left out."""
    for epoch in audited.epochs:
        if epoch.indices is None or audited.draws_again:
            continue
        ids, counts = np.unique(epoch.indices, return_counts=True)
        twice = ids[counts > 1]
        padded = audited.ranks > 1 and len(twice) < audited.ranks
        if len(twice) and not padded:
            places = np.flatnonzero(np.asarray(epoch.indices) == twice[0])[:2]
            where = " and ".join(str(_batch_of(epoch, int(place))) for place in places)
            yield AuditFinding(
                "served twice",
                f"{name_of(audited, epoch)}: {plural(len(twice), 'sample')} served more than once, "
                f"for example sample {twice[0]} in batches {where}.",
                "let the sampler yield each index once.",
                "repeated samples",
            )
        if epoch.complete and audited.expected is not None:
            missing = audited.expected - len(ids)
            allowed = audited.batch_size - 1 if audited.drop_last else 0
            if missing > allowed and not padded:
                yield AuditFinding(
                    "left out",
                    f"{name_of(audited, epoch)}: {missing} of {audited.expected} samples were left "
                    "out.",
                    "let the sampler yield every index, and keep the last batch "
                    "(drop_last=False) in validation.",
                )


def _workers_alike(audited: Audited) -> Iterator[AuditFinding]:
    """Find streams in which all workers serve the same samples."""
    for epoch in audited.epochs:
        if epoch.indices is not None or not len(epoch.workers):
            continue
        workers = np.repeat(epoch.workers, epoch.sizes)
        prints = np.asarray(epoch.prints)
        if len(workers) != len(prints):
            continue
        own = {worker: np.unique(prints[workers == worker]) for worker in {*epoch.workers}}
        for one, other in combinations(sorted(own), 2):
            if _mostly_same(own[one], own[other]):
                both = len(np.intersect1d(own[one], own[other]))
                yield AuditFinding(
                    "served twice",
                    f"{name_of(audited, epoch)}: workers {one} and {other} serve the same "
                    f"{both} samples, so each sample is served once per worker.",
                    "share the data in __iter__: worker `get_worker_info().id` of "
                    "`get_worker_info().num_workers` takes every n-th sample or shard.",
                    "duplicated samples",
                )
                break


def _mostly_same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    least = min(len(one), len(other))
    return least >= FEW and len(np.intersect1d(one, other)) > SAME_CONTENT * least


def _one_class(audited: Audited) -> Iterator[AuditFinding]:
    """Find training batches that contain one class only, although there are several."""
    for epoch in audited.epochs:
        labels = epoch.labels
        if not epoch.training or len(labels) != sum(epoch.sizes) or None in labels:
            continue
        counts = Counter(labels)
        if len(labels) < FEW or len(counts) < 2 or len(counts) > len(labels) / 4:
            continue
        ends = np.cumsum(epoch.sizes)
        sizes = [(end - size, end) for size, end in zip(epoch.sizes, ends, strict=True) if size > 1]
        alone = sum(len({*labels[begin:end]}) == 1 for begin, end in sizes)
        share = max(counts.values()) / len(labels)
        expected = float(np.mean([share ** (end - begin - 1) for begin, end in sizes] or [1.0]))
        if len(sizes) >= 4 and alone > (ONE_CLASS + expected) / (1 + expected) * len(sizes):
            yield AuditFinding(
                "not mixed",
                f"{name_of(audited, epoch)}: {alone} of {len(sizes)} batches contain only one "
                f"class, although there are {len(counts)}. By chance it would be "
                f"{percent(expected)}.",
                "shuffle: `shuffle=True`, or a larger shuffle buffer over several files.",
                "unmixed batches",
            )


def _clustered(audited: Audited) -> Iterator[AuditFinding]:
    """Find random orders in which the samples of a batch stay close to each other on disk."""
    for epoch in audited.epochs:
        if epoch.indices is None or not epoch.training or not audited.total:
            continue
        ids = np.asarray(epoch.indices)
        if len(ids) < 4 * FEW or (np.diff(ids) >= 0).mean() > 0.95:
            continue  # the order is not shuffled, which a note below reports
        ends = np.cumsum(epoch.sizes)[:-1]
        spans = [np.abs(np.diff(part)).mean() for part in np.split(ids, ends) if len(part) > 3]
        quality = float(np.mean(spans)) / (audited.total / 3) if spans else 1.0
        if quality < CLUSTERED:
            yield AuditFinding(
                "weakly mixed",
                f"{name_of(audited, epoch)}: neighbours in a batch are {percent(quality)} as far "
                "apart in the dataset as in a full shuffle.",
                "mix over more files, or use a larger shuffle buffer, if neighbours are alike.",
                fault=False,
            )


def _damaged(audited: Audited) -> Iterator[AuditFinding]:
    for epoch in audited.epochs:
        if epoch.damage:
            number, words = epoch.damage[0]
            yield AuditFinding(
                "damaged",
                f"{name_of(audited, epoch)}: in batch {number}, {words} "
                f"({plural(len(epoch.damage), 'batch')} in all).",
                f"look at the samples of this batch: {_first_ids(epoch, number)}.",
                "NaN in a batch",
            )
        if len(epoch.forms) > 1:
            (first, _), (other, number), *_ = epoch.forms.items()
            yield AuditFinding(
                "changing dtype",
                f"{name_of(audited, epoch)}: batch {number} has the dtypes {other}, but the first "
                f"has {first}.",
                "let the dataset convert every sample to the same dtype.",
            )


def _first_ids(epoch: EpochRecord, batch: int) -> str:
    begin = int(np.sum(epoch.sizes[:batch]))
    ids = _ids(epoch)[begin : begin + min(4, epoch.sizes[batch])]
    return ", ".join(map(str, ids))


def _short_batch(audited: Audited) -> Iterator[AuditFinding]:
    """Report a smaller last batch, because a mean of batch means gives it too much weight."""
    for epoch in audited.epochs[:1]:
        sizes = epoch.sizes
        if epoch.complete and len(sizes) > 1 and 0 < sizes[-1] < sizes[0] / 2:
            yield AuditFinding(
                "small last batch",
                f"{name_of(audited, epoch)}: the last batch has {plural(sizes[-1], 'sample')}, the "
                f"others {sizes[0]}. A mean of the batch means weights these samples "
                f"{sizes[0] / sizes[-1]:.0f} times as much.",
                "weight each batch by its size: sum(loss * len(batch)) / sum(len(batch)).",
                fault=False,
            )


EPOCH_CHECKS: tuple[Callable[[Audited], Iterator[AuditFinding]], ...] = (
    _repeated,
    _workers_alike,
    _one_class,
    _clustered,
    _damaged,
    _short_batch,
    *VALUE_CHECKS,
)

# --- Epochs and workers of a loader ---------------------------------------------------------------


def _same_order(audited: Audited) -> Iterator[AuditFinding]:
    """Find a shuffled order that is the same in two epochs."""
    for one, other in pairwise(audited.epochs):
        if not (one.training and other.training) or one.indices is None or other.indices is None:
            continue
        first, second = np.asarray(one.indices), np.asarray(other.indices)
        count = min(len(first), len(second))
        if count < FEW or not np.array_equal(first[:count], second[:count]):
            continue
        if (np.diff(first) > 0).all():
            yield AuditFinding(
                "in order",
                f"{name_of(audited)}: every epoch serves the samples in the order of the dataset.",
                "set `shuffle=True` for training.",
                fault=False,
            )
        else:
            yield AuditFinding(
                "same order",
                f"{name_of(audited)}: epochs {one.number} and {other.number} serve the same random "
                f"order, beginning with samples {', '.join(map(str, first[:4]))}.",
                "call `loader.sampler.set_epoch(epoch)` before each epoch, or do not seed the "
                "sampler again.",
                "same order",
            )
        return


def _same_random_numbers(audited: Audited) -> Iterator[AuditFinding]:
    """Find generators in the dataset that draw the same numbers in several workers or epochs."""
    for epoch in audited.epochs:
        for (one, mine), (other, theirs) in combinations(sorted(epoch.states.items()), 2):
            before, after = mine
            if before and before == theirs[0] and after == theirs[1] and before != after:
                yield AuditFinding(
                    "same random numbers",
                    f"{name_of(audited, epoch)}: a generator in the dataset draws the same numbers "
                    f"in workers {one} and {other}, so their augmentations repeat.",
                    "create the generator in the worker (worker_init_fn, or at the first use) and "
                    "seed it with `torch.initial_seed()`.",
                    "same random numbers",
                )
                return
    for first, second in pairwise(audited.epochs):
        for worker in sorted({*first.states} & {*second.states} - {-1}):
            before, after = first.states[worker]
            if before and before != after and first.states[worker] == second.states[worker]:
                yield AuditFinding(
                    "same random numbers",
                    f"{name_of(audited)}: a generator in the dataset draws the same numbers in "
                    f"epochs {first.number} and {second.number}, because each new worker gets a "
                    "copy of it.",
                    "seed it in the worker with `torch.initial_seed()`, which differs in each "
                    "epoch.",
                    "same random numbers",
                )
                return


def _cycled(audited: Audited) -> Iterator[AuditFinding]:
    if any(epoch.cycled and epoch.training for epoch in audited.epochs):
        yield AuditFinding(
            "repeated epoch",
            f"{name_of(audited)}: `itertools.cycle` keeps all batches of the first epoch, and "
            "serves them again in the same order with the same augmentations.",
            "write a generator: `while True: yield from loader`.",
            "itertools.cycle",
        )


def _stale_epoch(audited: Audited) -> Iterator[AuditFinding]:
    """Find workers that never receive the epoch number."""
    for epoch in audited.epochs:
        told = epoch.dataset_epoch or 0
        stale = [worker for worker, number in epoch.worker_epochs.items() if number < told]
        if stale:
            yield AuditFinding(
                "stale epoch",
                f"{name_of(audited, epoch)}: the dataset is at epoch {told}, but its "
                f"copy in worker {stale[0]} is at epoch {epoch.worker_epochs[stale[0]]}.",
                "call `set_epoch` before `iter(loader)`. For persistent workers, keep the number "
                "in shared memory, such as torch.zeros(1).share_memory_().",
                "stale epoch",
            )
            return


LOADER_CHECKS: tuple[Callable[[Audited], Iterator[AuditFinding]], ...] = (
    _same_order,
    _same_random_numbers,
    _stale_epoch,
    _cycled,
)

# --- Several loaders and ranks --------------------------------------------------------------------


def _ranks(loaders: Sequence[Audited]) -> Iterator[AuditFinding]:
    """Find ranks that serve the same samples, or different numbers of batches."""
    names = dict.fromkeys(audited.name for audited in loaders if audited.ranks > 1)
    for name in names:
        ranks = sorted((one for one in loaders if one.name == name), key=lambda one: one.rank)
        for epochs in zip(*(audited.epochs for audited in ranks), strict=False):
            if not all(epoch.training for epoch in epochs):
                continue
            found = [np.unique(_ids(epoch)) for epoch in epochs]
            for (one, mine), (other, theirs) in combinations(enumerate(found), 2):
                both = len(np.intersect1d(mine, theirs))
                if min(len(mine), len(theirs)) >= FEW and both > max(
                    len(ranks), min(len(mine), len(theirs)) / 2
                ):
                    yield AuditFinding(
                        "ranks overlap",
                        f"{name}, epoch {epochs[0].number}: ranks {ranks[one].rank} and "
                        f"{ranks[other].rank} serve {both} samples in common.",
                        "use a DistributedSampler. In a stream, take every n-th shard of the rank.",
                        "ranks overlap",
                    )
                    return
            counts = [len(epoch.sizes) for epoch in epochs]
            if all(epoch.complete for epoch in epochs) and len({*counts}) > 1:
                yield AuditFinding(
                    "uneven ranks",
                    f"{name}, epoch {epochs[0].number}: the ranks serve "
                    f"{', '.join(map(str, counts))} batches. The rank with more batches waits "
                    "forever for the others.",
                    "give every rank the same number of batches.",
                    "uneven ranks",
                )
                return


def _train_and_validation(loaders: Sequence[Audited]) -> Iterator[AuditFinding]:
    """Find samples that a training loader shares with a validation loader."""
    training = [one for one in loaders if any(epoch.training for epoch in one.epochs)]
    others = [one for one in loaders if one.epochs and one not in training]
    for one in training:
        for other in others:
            if one.rank != other.rank:
                continue
            same_base = one.base == other.base
            mine, theirs = (_rows(each) if same_base else _contents(each) for each in (one, other))
            both = np.intersect1d(mine, theirs)
            if len(both) > 0.01 * len(theirs) and len(theirs) >= FEW:
                yield AuditFinding(
                    "leak",
                    f"{one.name} and {other.name} share {len(both)} of {len(theirs)} samples of "
                    "validation.",
                    "split the dataset once, by groups that belong together, before you create "
                    "the two loaders.",
                    "validation leak",
                )


def shared_groups(one: Audited, other: Audited, groups: Sequence[Any]) -> Iterator[AuditFinding]:
    """Find groups with samples in both loaders.

    Args:
        one: Loader of the training.
        other: Loader of the validation.
        groups: Group of each row of the dataset below all subsets.

    Raises:
        KeepfedError: If a row has no group.
    """
    mine, theirs = _rows(one), _rows(other)
    rows = np.concatenate([mine, theirs])
    if len(rows) and rows.max() >= len(groups):
        raise KeepfedError(
            f"`groups` has {len(groups)} entries, but sample {rows.max()} was served. Pass one "
            "group for each sample of the dataset."
        )
    both = {groups[int(row)] for row in mine} & {groups[int(row)] for row in theirs}
    if both:
        yield AuditFinding(
            "shared groups",
            f"{one.name} and {other.name} share {plural(len(both), 'group')}, for example "
            f"{min(both)}.",
            "split by group, not by sample.",
            "validation leak",
        )


def _rows(audited: Audited) -> NDArray[Any]:
    """Return the rows of the dataset below all subsets that a loader served."""
    known = [np.asarray(epoch.indices) for epoch in audited.epochs if epoch.indices is not None]
    rows = np.unique(np.concatenate([np.array([], dtype=np.int64), *known]))
    return rows if audited.subset is None else np.asarray(audited.subset)[rows]


def _contents(audited: Audited) -> NDArray[Any]:
    parts = [np.unique(np.asarray(epoch.prints)) for epoch in audited.epochs]
    found = np.unique(np.concatenate([np.array([], dtype=np.uint64), *parts]))
    return np.asarray(found[found != UNSEEN])


PROGRAM_CHECKS: tuple[Callable[[Sequence[Audited]], Iterator[AuditFinding]], ...] = (
    _ranks,
    _train_and_validation,
    check_scales,
)
