"""Exercise 11.1: a sampler for each rank. Together, the ranks serve every sample once."""

import operator
from collections.abc import Sequence
from functools import partial
from itertools import chain, islice, product
from typing import Any, NamedTuple

from course_utils.exercises.judging.chance import expect_mixed
from course_utils.exercises.judging.compare import Slip, compare
from course_utils.exercises.judging.probes import process_unchanged
from course_utils.teaching.exercise import Verdict, exercise, expect, expect_a_class, right
from keepfed.formatting import plural

COUNTS, RANKS = (10, 7, 64, 101, 1, 0), (1, 2, 3, 4, 8)
LARGE = 70_000  # samples, more than 16 bits can number
LATE = (64, 100, 256, 65_536)  # in a cycle of this length, epoch 0 again
DEAL = "order[self.rank :: self.world_size]"
SERVED, UNIQUE, SIZES = "samples served", "different samples", "sizes of the shares"
LENGTHS = "len() is the size of the share"


class Setup(NamedTuple):
    """The number of ranks, and of samples."""

    ranks: int
    samples: int

    def __str__(self) -> str:
        return f"{plural(self.ranks, 'rank')} and {plural(self.samples, 'sample')}"


SLIPS = (
    Slip(
        lambda setup, got, _: got[UNIQUE] == setup.samples < got[SERVED],
        "With {case}, the ranks serve {got[samples served]} samples, of which {got[different "
        "samples]} are different. DistributedSampler pads like this, so that all shares have the "
        "same size, but here each sample must come once.",
        f"Let each rank take its share of one common order: {DEAL}.",
    ),
    Slip(
        lambda _, got, __: got[UNIQUE] < got[SERVED],
        "With {case}, some samples come twice and others never. Each rank shuffles in a different "
        "order, or the indices are drawn with replacement.",
        "Shuffle all indices in the same order on all ranks: "
        "default_rng([self.seed, self.epoch]).permutation(self.n_samples).",
    ),
    Slip(
        lambda setup, got, _: got[SERVED] == got[UNIQUE] < setup.samples,
        "With {case}, the ranks serve only {got[samples served]} samples. The others are lost, as "
        "with drop_last=True, or the indices have too few bits.",
        f"Let some ranks have one sample more: {DEAL}. The first rank is 0.",
    ),
)


@exercise("11.1", title="Every sample once")
def every_sample_once(sampler_class: type[Any]) -> Verdict:
    """Judge samplers of 1 to 8 ranks over several epochs."""
    expect_a_class(sampler_class, "a sampler", "builds one for each rank")
    setups = [Setup(ranks, count) for count, ranks in product(COUNTS, RANKS)]
    setups.append(Setup(8, LARGE))
    compare(partial(_serve, sampler_class), _plain, setups, *SLIPS, show=str)
    _judge_epochs(sampler_class)
    return right(
        "Every sample comes once in each epoch, on 1 to 8 ranks. Each epoch has a new order, and "
        "the same epoch always has the same one."
    )


def _serve(sampler_class: type[Any], setup: Setup) -> dict[str, Any]:
    with process_unchanged():
        samplers = [sampler_class(setup.samples, rank, setup.ranks) for rank in range(setup.ranks)]
    for sampler in samplers:
        sampler.set_epoch(1)
    before = [len(sampler) for sampler in samplers]  # a progress bar calls len() first
    shares = [_read(sampler, 2 * setup.samples) for sampler in samplers]
    return _facts(setup, shares, before, [len(sampler) for sampler in samplers])


def _plain(setup: Setup) -> dict[str, Any]:
    shares = [[*range(rank, setup.samples, setup.ranks)] for rank in range(setup.ranks)]
    return _facts(setup, shares)


def _facts(
    setup: Setup, shares: Sequence[Sequence[int]], *lengths: Sequence[int]
) -> dict[str, Any]:
    sizes = [*map(len, shares)]
    return {
        SERVED: sum(sizes),
        UNIQUE: len({*chain(*shares)} & {*range(setup.samples)}),
        SIZES: sorted(sizes),
        LENGTHS: all(length == sizes for length in lengths),
    }


def _read(sampler: Any, most: int = LARGE) -> list[int]:
    """Return the indices of an epoch. The generators of the process must stay as they are."""
    with process_unchanged():
        indices = iter(sampler)
        served = [*islice(indices, 1)]
    with process_unchanged():
        served += islice(indices, most)
    return [*map(operator.index, served)]


def _judge_epochs(sampler_class: type[Any]) -> None:
    """Judge whether an epoch is always the same, and shares out all samples again."""

    def share(epoch: int, seed: int = 0) -> list[int]:
        sampler = sampler_class(101, 1, 4, seed=seed)
        if epoch:
            sampler.set_epoch(epoch)
        return _read(sampler)

    used = sampler_class(101, 1, 4)
    for epoch in 1, 0:
        used.set_epoch(epoch)
        first = _read(used)
        sampler_class(101, 1, 4, seed=9).set_epoch(7)  # as another loader of the process may do
        expect(
            first == _read(used) == share(epoch),
            f"Your sampler serves several orders of epoch {epoch}: in a second pass, without "
            "set_epoch, or next to another sampler. A restarted rank would serve other samples.",
            "Compute the order in every __iter__, from self.seed and self.epoch alone. Set both in "
            "self, not in the class. Start with epoch 0, and change it in set_epoch only.",
        )
    sampler, orders = sampler_class(1_000, 0, 1), []
    for epoch in range(8):
        sampler.set_epoch(epoch)
        orders.append(_read(sampler))
    expect_mixed(orders, range(1_000))
    pairs = [(0, epoch) for epoch in (*range(16), *LATE)], [(seed, 3) for seed in (0, 1, 10)]
    for some in pairs:
        shares = {frozenset(share(epoch, seed)) for seed, epoch in some}
        expect(
            len(shares) == len(some),
            f"A rank has {len(shares)} different shares in {len(some)} pairs of seed and epoch. "
            "Either you shuffle only within a share, or two pairs give one order.",
            "Shuffle all samples with default_rng([self.seed, self.epoch]), then take the share.",
        )
