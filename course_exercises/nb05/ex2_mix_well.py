"""Check of notebook 05: three numbers of a shuffle, judged by what they buy and what they cost."""

from typing import Any

from course_exercises.judging import read_whole
from course_exercises.nb05.problem import EPOCHS, EVENTS, SHARDS, try_out
from course_utils.teaching.exercise import Verdict, exercise, expect, right
from keepfed.formatting import plural

MEMORY, REQUESTS, SCATTER = 1_000, 1_000, 1.5


@exercise("05.2", title="Mix well with little memory")
def mix_with_little_memory(at_once: int, chunk: int, buffer: int) -> Verdict:
    """Judge the number of shards read at once, the events per request, and the buffer."""
    at_once, chunk = _whole("at_once", at_once), _whole("chunk", chunk)
    buffer = _whole("buffer", buffer)
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
    scatter = try_out(at_once, chunk, buffer).ratio
    _judge_scatter(scatter, at_once, chunk, memory)
    return right(
        f"The batch means scatter {scatter:.2f} times as much as in a full shuffle, with "
        f"{memory:,} of {EVENTS:,} events in memory and {requests:,} requests."
    )


def _whole(name: str, value: Any) -> int:
    misconception = f"{name} = {value!r}: events and shards are counted in whole numbers."
    next_step = "Take whole numbers from 1 on. A buffer of 1 is none."
    number = read_whole(value, misconception, next_step)
    expect(number >= 1, misconception, next_step)
    return number


def _judge_scatter(scatter: float, at_once: int, chunk: int, memory: int) -> None:
    found = f"Over {EPOCHS} epochs the batch means scatter {scatter:.3f} times the ideal"
    expect(
        scatter <= SCATTER or chunk <= EVENTS // REQUESTS,
        f"{found}. A chunk of {chunk} spends memory that more shards at once could use.",
        "Take the smallest chunk that the requests allow.",
    )
    expect(
        scatter <= SCATTER or memory > 0.9 * MEMORY,
        f"{found}, and there is room for {MEMORY - memory:,} more events in memory.",
        "Open more shards at once.",
    )
    expect(
        scatter <= SCATTER,
        f"{found}; {SCATTER} is wanted. A buffer moves most events by less than its own length, so "
        f"with {plural(at_once, 'shard')} at once a batch sees few energies.",
        "Give memory from the buffer to more shards at once, and measure with try_out.",
    )
