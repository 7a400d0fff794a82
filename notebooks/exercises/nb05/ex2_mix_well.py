"""Check of notebook 05: three numbers of a shuffle, judged by what they buy and what they cost."""

import numpy as np

from course_utils.loading.stream import (
    batched,
    blocks,
    buffer_shuffle,
    interleave,
    mixing,
    shuffled,
)
from course_utils.teaching.exercise import Verdict, exercise, expect, right

EVENTS, SHARDS, BATCH = 20_000, 100, 64
MEMORY, REQUESTS, SCATTER = 1_000, 1_000, 1.5
SEEDS = range(100, 110)  # none that the notebook shows


@exercise("05.2", title="Mix well with little memory")
def mix_with_little_memory(at_once: int, chunk: int, buffer: int) -> Verdict:
    """Judge the number of shards read at once, the events per request, and the buffer."""
    numbers = {"at_once": at_once, "chunk": chunk, "buffer": buffer}
    for name, value in numbers.items():
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        expect(
            whole and value >= 1,
            f"{name} = {value!r} is no number of events or shards.",
            "Take whole numbers from 1 on.",
        )
    expect(
        at_once <= SHARDS and chunk <= EVENTS // SHARDS,
        f"There are {SHARDS} shards of {EVENTS // SHARDS} events: no more can be open, and no "
        "more be read with one request.",
        f"Take at_once up to {SHARDS} and chunk up to {EVENTS // SHARDS}.",
    )
    requests = SHARDS * -(-EVENTS // SHARDS // chunk)
    expect(
        requests <= REQUESTS,
        f"{requests:,} requests in an epoch; {REQUESTS:,} are allowed. Small chunks save memory, "
        "and cost a request each.",
        "The chunk follows from the requests alone: 20,000 / chunk.",
    )
    memory = buffer + at_once * chunk
    expect(
        memory <= MEMORY,
        f"{memory:,} events are in memory, {buffer:,} in the buffer and {at_once * chunk:,} read "
        f"ahead; {MEMORY:,} are allowed. What is read and not yet used is memory too.",
        "Lower one of the three, and see what it does to the scatter with try_out.",
    )
    scatter = float(np.mean([_scatter(at_once, buffer, seed) for seed in SEEDS]))
    _judge_scatter(scatter, at_once, chunk, memory)
    return right(
        f"The batch means scatter {scatter:.2f} times as much as in a full shuffle, with "
        f"{memory:,} of {EVENTS:,} events in memory and {requests:,} requests."
    )


def _scatter(at_once: int, buffer: int, seed: int) -> float:
    rng = np.random.default_rng(seed)
    energy = np.sort(rng.exponential(size=EVENTS))
    shards = shuffled(blocks(EVENTS, EVENTS // SHARDS), rng)
    order = buffer_shuffle(interleave(shards, at_once), buffer, rng)
    return mixing(batched(order, BATCH), energy).ratio


def _judge_scatter(scatter: float, at_once: int, chunk: int, memory: int) -> None:
    found = f"Over ten hidden epochs the batch means scatter {scatter:.2f} times the ideal"
    expect(
        scatter <= SCATTER or chunk <= EVENTS // REQUESTS,
        f"{found}. A chunk of {chunk} spends memory that more shards at once could use.",
        "Take the smallest chunk that the requests allow.",
    )
    expect(
        scatter <= SCATTER or memory > 0.9 * MEMORY,
        f"{found}, and {MEMORY - memory:,} events of memory are unused.",
        "Open more shards at once.",
    )
    expect(
        scatter <= SCATTER,
        f"{found}; {SCATTER} is wanted. A buffer moves an event by its own length only, so with "
        f"{at_once} shard{'s' * (at_once != 1)} at once a batch sees few energies.",
        "Give memory from the buffer to more shards at once, and measure with try_out.",
    )
