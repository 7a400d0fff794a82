"""11.1: a sampler for each rank, which together serve every sample once."""

import operator
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations, islice, product
from typing import Any

from course_exercises.judging import (
    Served,
    in_another_process,
    random_numbers_of,
    random_state,
    stay_together,
)
from course_utils.teaching.exercise import Verdict, exercise, expect, expect_a_class, right
from keepfed.formatting import plural

RANKS = (1, 2, 3, 4, 8)
COUNTS = (10, 7, 64, 101, 1)  # samples; a multiple of ranks, neither, fewer
EPOCHS = (0, 1, 2, 3, 16_801)  # in a cycle of 8, 10 or 100 the last is an earlier one again
MANY = 1_000  # samples, whose order is looked at
LARGE = 70_000  # samples, more than two bytes can number
NEIGHBOURS = 0.1  # share of neighbours that stay together; by chance 0.002


@exercise("11.1", title="Every sample once")
def every_sample_once(sampler_class: type[Any]) -> Verdict:
    """Judge samplers of 1 to 8 ranks over several epochs."""
    expect_a_class(sampler_class, "a sampler", "builds one for each rank")
    for ranks, count in product(RANKS, COUNTS):
        _judge_share(sampler_class, ranks, count)
    _judge_share(sampler_class, RANKS[-1], LARGE)
    _judge_epochs(sampler_class)
    _judge_order(sampler_class)
    return right(
        "Every sample once in each epoch, on 1 to 8 ranks, whatever their number; in a new order "
        "each time, and the same again when the epoch is."
    )


def _judge_share(sampler_class: type[Any], ranks: int, count: int) -> None:
    where = f"With {plural(ranks, 'rank')} and {plural(count, 'sample')}"
    with _random_numbers(seed=11):  # not those of a sampler's own seed
        samplers = [sampler_class(count, rank, ranks) for rank in range(ranks)]
        for sampler in samplers:
            sampler.set_epoch(1)
        before = [len(sampler) for sampler in samplers]  # a progress bar asks before it reads
    by_place = {(rank, 0): _read(sampler, 1, rank) for rank, sampler in enumerate(samplers)}
    served = Served(by_place, range(count))
    total = served.counts.total()
    expect(
        served.counts.keys() <= set(range(count)),
        f"{where} the sampler gives {next(iter(served.counts.keys() - set(range(count))), None)}, "
        "which is no number of a sample.",
        f"The samples are 0 to {count - 1}: shuffle range(n_samples).",
    )
    expect(
        max(served.counts, default=0) >= 2**16 or count < LARGE,
        f"{where} no number is above 65,535: you keep them in two bytes.",
        "Leave them in 64 bits: rng.permutation(n_samples).",
    )
    expect(
        not served.all_ranks_alike or by_place[0, 0] == by_place[1, 0],
        f"{where} every rank serves the same samples, and another order of them: its number "
        "decides in which order it deals, and so two ranks may get the same cards.",
        "Let all have one order, and deal it from the same end: order[rank::world_size].",
    )
    expect(
        not served.all_ranks_alike,
        f"{where} every rank serves the same samples: its number is not used.",
        "Deal the shuffled numbers out like cards: order[rank::world_size].",
    )
    expect(
        not served.twice or served.lost or total != -(-count // ranks) * ranks,
        f"{where} {total} are served, so that all ranks have equally many: {served.twice} come "
        "twice. DistributedSampler pads like this, and this sampler shall not.",
        "Let some ranks have one sample less than others: order[rank::world_size].",
    )
    expect(
        ranks > 1 or not served.twice,
        f"{where} {served.twice} are served more than once: the numbers are drawn with "
        "replacement, or the list is gone through twice.",
        "Shuffle all numbers once: rng.permutation(n_samples).",
    )
    expect(
        not (served.twice and served.lost),
        f"{where} {served.twice} are served more than once and {served.lost} by nobody: each rank "
        "deals from an order of its own. What is drawn from the random numbers of the process "
        "differs between ranks too.",
        "Shuffle with a generator whose seed all ranks share: default_rng([seed, epoch]).",
    )
    expect(
        not served.twice,
        f"{where} {served.twice} are served more than once: the shares overlap.",
        "Deal them out like cards: begin at the rank, and step by world_size.",
    )
    expect(
        not served.lost or total != count // ranks * ranks,
        f"{where} {served.lost} are served by nobody, as with drop_last. Shares of equal size "
        "lose what does not divide evenly.",
        "Deal them out like cards, order[rank::world_size]: that loses none.",
    )
    expect(
        not served.lost,
        f"{where} {served.lost} are served by nobody.",
        "Deal them out like cards, order[rank::world_size]; the first rank is 0.",
    )
    sizes = {rank: len(own) for (rank, _), own in by_place.items()}
    expect(
        max(sizes.values()) - min(sizes.values()) <= 1,
        f"{where} one rank gets {max(sizes.values())} samples and another {min(sizes.values())}; "
        "the others would wait for the slowest.",
        "Deal them out like cards: the shares then differ by one at most.",
    )
    for rank, said in enumerate(zip(before, map(len, samplers), strict=True)):
        expect(
            set(said) == {sizes[rank]},
            f"{where} rank {rank} serves {sizes[rank]}, and its len() is "
            f"{', and later '.join(map(str, dict.fromkeys(said)))}: the loader would announce "
            "another number of batches than it gives.",
            "len(range(rank, n_samples, world_size)) counts the cards of one player.",
        )


def _read(sampler: Any, epoch: int | None, seed: int = 0) -> list[int]:
    """Return an epoch, read where the random numbers of the process are those of `seed`."""
    with _random_numbers(seed):
        if epoch is not None:
            sampler.set_epoch(epoch)
        numbers = iter(sampler)
    found = list[Any]()
    for some in 1, 2 * LARGE:
        with _random_numbers(seed):
            found += islice(numbers, some)
    expect(
        len(found) < 2 * LARGE,
        "The sampler gives more numbers than there are samples: it never ends.",
        "Go through the share of the rank once.",
    )
    for kind in dict.fromkeys(map(type, found)):
        expect(
            hasattr(kind, "__index__"),
            f"The sampler gives a {kind.__name__}; a dataset is asked for samples by their number.",
            "Yield the numbers one by one: iter(order.tolist()).",
        )
    return [operator.index(number) for number in found]


@contextmanager
def _random_numbers(seed: int) -> Iterator[None]:
    """Let the process have the random numbers of `seed`, and refuse code that touches them."""
    with random_numbers_of(seed):
        before = random_state()
        yield
        after = random_state()
    expect(
        before == after,
        "Your sampler draws from the random numbers of the whole process, or seeds them anew. They "
        "differ from rank to rank; and to seed them makes the dropout of every epoch alike, also "
        "where they are put back at the end of the epoch: the training draws before that.",
        "Take a generator of your own: np.random.default_rng([self.seed, self.epoch]).",
    )


def _judge_epochs(sampler_class: type[Any]) -> None:
    """Judge whether the same epoch is the same again, and another one shares out anew."""
    sampler = sampler_class(101, 1, 4)
    for epoch in 0, 1:
        first, untold, again = (_read(sampler, told) for told in (epoch, None, epoch))
        other = _read(sampler_class(101, 1, 4), epoch)
        expect(
            first == again == other,
            "The same epoch, asked for twice, is not the same: after a restart the rank would "
            "serve other samples than before.",
            "Work the order out anew in every __iter__, from seed and epoch alone; 0 is a seed "
            "too.",
        )
        expect(
            first == untold,
            "Read twice without a word from set_epoch, the sampler serves two epochs: reading it "
            "once, be it to look at it, takes the rank away from the order of the others.",
            "Leave self.epoch to set_epoch: what is read changes nothing.",
        )
    with in_another_process():
        elsewhere = _read(sampler_class(101, 1, 4), 1)
    expect(
        elsewhere == first,
        "In another process the same epoch is another one: there a text has another hash, unless "
        "PYTHONHASHSEED is set, and os.getpid another answer. So each rank deals from an order of "
        "its own.",
        "Take numbers for the seed: np.random.default_rng([self.seed, self.epoch]).",
    )
    shares = [frozenset(_read(sampler, epoch)) for epoch in EPOCHS]
    expect(
        len(set(shares)) == len(EPOCHS),
        "In several epochs the rank serves the same samples: set_epoch is not heard, or only what "
        "is its own is shuffled. So samples never meet those of another share.",
        "Shuffle all samples, with the epoch itself in the seed, and take the share afterwards.",
    )
    expect(
        _read(sampler_class(101, 1, 4), None) == _read(sampler, 0),
        "A sampler that nobody told an epoch does not serve epoch 0. An evaluation calls no "
        "set_epoch.",
        "Let epoch be 0 from the beginning, as __init__ has it.",
    )
    one, two = (set(_read(sampler_class(101, 1, 4, seed=1), epoch)) for epoch in (1, 2))
    expect(
        one != two,
        "With seed=1 two epochs have the same samples; with seed=0 they have others.",
        "Put both into the seed: default_rng([self.seed, self.epoch]).",
    )
    expect(
        one != set(first),
        "Another seed gives the same samples: a second training would repeat the first.",
        "Put both into the seed: default_rng([self.seed, self.epoch]).",
    )


def _judge_order(sampler_class: type[Any]) -> None:
    sampler = sampler_class(MANY, 0, 1)
    orders = {epoch: _read(sampler, epoch) for epoch in EPOCHS}
    for one, other in combinations(EPOCHS, 2):
        expect(
            stay_together(orders[one], orders[other]) < NEIGHBOURS,
            f"In epochs {one} and {other} most samples have the same neighbours, also in a batch: "
            "the order is turned or moved in blocks, not drawn anew.",
            "Draw a whole permutation in each epoch: rng.permutation(n_samples).",
        )
    expect(
        stay_together(orders[0], range(MANY)) < NEIGHBOURS,
        "Most samples come beside their neighbours on disk: that is no shuffle.",
        "Draw a whole permutation in each epoch: rng.permutation(n_samples).",
    )
