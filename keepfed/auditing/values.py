"""Check the numbers in the batches: their scale, constant batches and read-only arrays."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from keepfed.auditing.record import Audited, EpochRecord
from keepfed.auditing.report import AuditFinding, name_of
from keepfed.auditing.samples import READ_ONLY, Spread

GAP = 32  # minimum ratio between two groups of batches to call their scales different
ALIKE = 4  # maximum ratio within such a group
OTHER_STD = 5  # ratio of standard deviations above which two loaders differ in scale
OTHER_MEAN = 3  # difference of two means, in standard deviations
LARGE_STD, LARGE_MEAN = 20, 10  # standard deviation, and mean in standard deviations


def _by_array(epoch: EpochRecord) -> dict[int, list[tuple[int, Spread]]]:
    """Return the batch and spread of each array, by its place in the batch."""
    found = defaultdict[int, list[tuple[int, Spread]]](list)
    for batch, place, spread in epoch.spreads:
        found[place].append((batch, spread))
    return found


def _scale(audited: Audited, place: int) -> tuple[float, float] | None:
    """Return the mean and the standard deviation of an array over all batches that were seen."""
    spreads = [s for epoch in audited.epochs for _, at, s in epoch.spreads if at == place]
    if not spreads:
        return None
    means, stds = np.array([s.mean for s in spreads]), np.array([s.std for s in spreads])
    return float(means.mean()), float(np.sqrt(np.mean(stds**2) + means.var()))


def _changing_scale(audited: Audited) -> Iterator[AuditFinding]:
    """Find batches in two groups of scale, such as pixels from 0 to 255 and from 0 to 1."""
    for epoch in audited.epochs:
        for seen in _by_array(epoch).values():
            ordered = sorted((s.size, batch) for batch, s in seen if s.size > 0)
            sizes = np.array([size for size, _ in ordered])
            if len(sizes) < 4:
                continue
            gaps = sizes[1:] / sizes[:-1]
            cut = int(gaps.argmax()) + 1
            low, high = sizes[:cut], sizes[cut:]
            alike = max(low[-1] / low[0], high[-1] / high[0]) < ALIKE
            if min(len(low), len(high)) >= 2 and gaps.max() > GAP and alike:
                times = np.median(high) / np.median(low)
                yield AuditFinding(
                    "changing scale",
                    f"{name_of(audited, epoch)}: the numbers in batch {ordered[-1][1]} are about "
                    f"{times:.0f} times as large as in batch {ordered[0][1]}.",
                    "let the dataset convert every sample to the same units.",
                )
                return


def _constant(audited: Audited) -> Iterator[AuditFinding]:
    """Report a batch in which an array has only one value, although it varies elsewhere."""
    for epoch in audited.epochs:
        for seen in _by_array(epoch).values():
            flat = [(batch, s.mean) for batch, s in seen if s.std == 0]
            if flat and len(flat) < len(seen) / 2:
                yield AuditFinding(
                    "constant",
                    f"{name_of(audited, epoch)}: batch {flat[0][0]} has an array that contains "
                    f"only the number {flat[0][1]:g}.",
                    "look at the samples of this batch, if the array is not a mask.",
                    fault=False,
                )
                return


def _not_normalised(audited: Audited) -> Iterator[AuditFinding]:
    if not any(epoch.training for epoch in audited.epochs):
        return
    for place in sorted({at for epoch in audited.epochs for _, at, _ in epoch.spreads}):
        mean, std = _scale(audited, place) or (0, 0)
        if std > LARGE_STD or (std and abs(mean) > LARGE_MEAN * std):
            yield AuditFinding(
                "not normalised",
                f"{name_of(audited)}: array {place} of a batch has a mean of {mean:.3g} and a "
                f"standard deviation of {std:.3g}.",
                "subtract the mean of the training data and divide by their standard deviation, "
                "if the model does not do it.",
                fault=False,
            )
            return


def _read_only(audited: Audited) -> Iterator[AuditFinding]:
    if any(READ_ONLY in form for epoch in audited.epochs for form in epoch.forms):
        yield AuditFinding(
            "read-only",
            f"{name_of(audited)}: the batches contain read-only arrays. A transform in place fails "
            "on them.",
            "copy the array once in the dataset (`np.array(view)`), if something writes to it.",
            fault=False,
        )


VALUE_CHECKS: tuple[Callable[[Audited], Iterator[AuditFinding]], ...] = (
    _changing_scale,
    _constant,
    _not_normalised,
    _read_only,
)


def check_scales(loaders: Sequence[Audited]) -> Iterator[AuditFinding]:
    """Report validation batches whose scale differs from the one in training."""
    training = [one for one in loaders if any(epoch.training for epoch in one.epochs)]
    for one in training:
        for other in loaders:
            if other in training or one.rank != other.rank:
                continue
            for place in sorted({at for epoch in one.epochs for _, at, _ in epoch.spreads}):
                mine, theirs = _scale(one, place), _scale(other, place)
                if not mine or not theirs or not min(mine[1], theirs[1]):
                    continue
                ratio = max(mine[1] / theirs[1], theirs[1] / mine[1])
                shift = abs(mine[0] - theirs[0]) / max(mine[1], theirs[1])
                if ratio > OTHER_STD or shift > OTHER_MEAN:
                    yield AuditFinding(
                        "other scale",
                        f"{one.name} and {other.name}: array {place} has a mean of {mine[0]:.3g} "
                        f"and a standard deviation of {mine[1]:.3g} in training, but "
                        f"{theirs[0]:.3g} and {theirs[1]:.3g} in the other loader.",
                        "normalise both with the numbers of the training data.",
                        fault=False,
                    )
                    break
