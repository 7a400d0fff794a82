"""Exercise 11.1: a sampler for each rank. Together, the ranks serve every sample once."""

import operator
from collections.abc import Sequence
from itertools import chain, islice, product
from typing import Any, NamedTuple

from course_utils.exercises.judging.chance import expect_mixed
from course_utils.exercises.judging.compare import Slip, compare
from course_utils.exercises.judging.probes import expect_given_rank, process_unchanged
from course_utils.teaching.exercise import Verdict, exercise, expect, expect_a_class, right
from keepfed.formatting import plural

COUNTS, RANKS = (10, 7, 64, 101, 1), (1, 2, 3, 4, 8)
LARGE = 70_000  # samples, more than 16 bits can number
EPOCHS = range(300)
LATE = (1_000, 10_000, 65_536, 100_000)  # in a cycle of this length, they are epoch 0 again
DEAL = "order[self.rank :: self.world_size]"


class Setup(NamedTuple):
    """The number of ranks, and of samples."""

    ranks: int
    samples: int

    def __str__(self) -> str:
        return f"{plural(self.ranks, 'rank')} and {plural(self.samples, 'sample')}"


class RankShare(dict[str, list[int]]):
    """Samples that the ranks served in an epoch, and their len() before and after it."""

    def __init__(self, shares: Sequence[list[int]], *lengths: list[int]):
        sizes = [len(share) for share in shares]
        super().__init__(samples=sorted(chain(*shares)), sizes=sorted(sizes))
        self.alike = len(shares) > 1 and len({frozenset(share) for share in shares}) == 1
        self.total, self.by_rank, self.lengths = sum(sizes), sizes, lengths
        self.unique = len({*chain(*shares)})


SLIPS = (
    Slip(
        lambda setup, got, _: setup.samples > 2**16 > max(got["samples"], default=0),
        "With {case}, no index is above 65,535, because your indices have only 16 bits.",
        "Keep them in 64 bits, as rng.permutation(n_samples) returns them.",
    ),
    Slip(
        lambda _, got, __: got.alike and got.total > got.unique,
        "With {case}, every rank serves the same samples.",
        f"Let each rank take its share of one common order: {DEAL}.",
    ),
    Slip(
        lambda setup, got, _: (
            got.unique
            == setup.samples
            < got.total
            == -(-setup.samples // setup.ranks) * setup.ranks
        ),
        "With {case}, the ranks serve {got.total} samples, so that all shares have the same size. "
        "DistributedSampler pads like this, but here each sample must come once.",
        f"Let some ranks have one sample less: {DEAL}.",
    ),
    Slip(
        lambda setup, got, _: got.unique < min(got.total, setup.samples),
        "With {case}, some samples come twice and others never. Each rank shuffles in a different "
        "order, or the indices are drawn with replacement.",
        "Shuffle all indices in the same order on all ranks: "
        "default_rng([self.seed, self.epoch]).permutation(self.n_samples).",
    ),
    Slip(
        lambda setup, got, _: got.total == got.unique < setup.samples,
        "With {case}, the ranks serve only {got.total} samples. The others are lost, as with "
        "drop_last=True.",
        f"Let some ranks have one sample more: {DEAL}. The first rank is 0.",
    ),
    Slip(
        lambda setup, got, _: (
            got.total == setup.samples and any(length != got.by_rank for length in got.lengths)
        ),
        "With {case}, the ranks serve {got.by_rank} samples, but len() returns {got.lengths[0]} "
        "before the epoch and {got.lengths[1]} after it. Progress bars and schedules use len().",
        "Return len(range(self.rank, self.n_samples, self.world_size)).",
    ),
)


@exercise("11.1", title="Every sample once")
def every_sample_once(sampler_class: type[Any]) -> Verdict:
    """Judge samplers of 1 to 8 ranks over several epochs."""
    expect_a_class(sampler_class, "a sampler", "builds one for each rank")

    def epoch_of(setup: Setup) -> RankShare:
        with process_unchanged():
            samplers = [sampler_class(setup.samples, n, setup.ranks) for n in range(setup.ranks)]
        for sampler in samplers:
            sampler.set_epoch(1)
        before = [len(sampler) for sampler in samplers]  # a progress bar calls len() first
        shares = [_read(sampler, 2 * setup.samples) for sampler in samplers]
        return RankShare(shares, before, [len(sampler) for sampler in samplers])

    def plain(setup: Setup) -> RankShare:
        return RankShare(
            [[*range(setup.samples)[rank :: setup.ranks]] for rank in range(setup.ranks)]
        )

    setups = [Setup(ranks, count) for count, ranks in product(COUNTS, RANKS)]
    compare(epoch_of, plain, [*setups, Setup(8, LARGE)], *SLIPS, show=str)
    _judge_epochs(sampler_class)
    expect_given_rank(lambda: _read(sampler_class(101, 1, 4)))
    return right(
        "Every sample comes once in each epoch, on 1 to 8 ranks. Each epoch has a new order, and "
        "the same epoch always has the same one."
    )


def _read(sampler: Any, most: int = LARGE) -> list[int]:
    """Return the indices of an epoch. The generators of the process must stay as they are."""
    with process_unchanged():
        indices = iter(sampler)
        found = [*islice(indices, 1)]
    with process_unchanged():
        found += islice(indices, most)
    for kind in {*map(type, found)}:
        expect(
            hasattr(kind, "__index__"),
            f"Your sampler yields a {kind.__name__}, but a dataset needs indices.",
            "Yield one whole number at a time: iter(order.tolist()).",
        )
    return [operator.index(index) for index in found]


def _judge_epochs(sampler_class: type[Any]) -> None:
    """Judge whether an epoch is always the same, and shares out all samples again."""

    def share(epoch: int | None, seed: int = 0) -> list[int]:
        sampler = sampler_class(101, 1, 4, seed=seed)
        if epoch is not None:
            sampler.set_epoch(epoch)
        return _read(sampler)

    used = sampler_class(101, 1, 4)
    for epoch in 1, 0:
        used.set_epoch(epoch)
        first = _read(used)
        sampler_class(101, 1, 4, seed=9).set_epoch(7)  # as another loader of the process may do
        second = _read(used)
        expect(
            first == second == share(epoch) and (epoch or first == share(None)),
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
    for cases in product((0, 1), EPOCHS), product((0,), (0, *LATE)):
        seen: dict[frozenset[int], str] = {}
        for seed, epoch in cases:
            name, samples = f"epoch {epoch:,} of seed {seed}", frozenset(share(epoch, seed))
            expect(
                samples not in seen,
                f"In {name}, the rank serves the same samples as in {seen.get(samples)}. Either "
                "you shuffle only within a share, or two pairs of seed and epoch give one order.",
                "Shuffle all samples with default_rng([self.seed, self.epoch]), then take the "
                "share.",
            )
            seen[samples] = name
