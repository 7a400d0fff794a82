"""Exercise 05.2: three numbers of a shuffle, checked by their scatter and their cost."""

from typing import Any

from course_utils.exercises.judging import read_whole
from course_utils.exercises.nb05.problem import EPOCHS, EVENTS, SHARDS, try_out
from course_utils.teaching.exercise import Verdict, exercise, expect, right

MEMORY, REQUESTS, SCATTER = 1_000, 1_000, 1.5


@exercise("05.2", title="Mix well with little memory", seconds=30)
def mix_with_little_memory(at_once: int, chunk: int, buffer: int) -> Verdict:
    """Check the number of shards read at once, the events per request, and the buffer."""
    at_once = _whole("at_once", at_once, SHARDS)
    chunk = _whole("chunk", chunk, EVENTS // SHARDS)
    buffer = _whole("buffer", buffer, EVENTS)
    requests = SHARDS * -(-EVENTS // SHARDS // chunk)
    expect(
        requests <= REQUESTS,
        f"An epoch takes {requests:,} requests, but only {REQUESTS:,} are allowed. Small chunks "
        "save memory, but each costs a request.",
        "The number of requests depends on the chunk only. Each of the 100 shards takes 200 / "
        "chunk requests, rounded up.",
    )
    memory = buffer + at_once * chunk
    expect(
        memory <= MEMORY,
        f"{memory:,} events are in memory, {buffer:,} of them in the buffer and "
        f"{at_once * chunk:,} in chunks. Only {MEMORY:,} are allowed.",
        "Lower one of the three numbers, and measure the scatter with try_out.",
    )
    scatter = try_out(at_once, chunk, buffer).ratio
    expect(
        scatter <= SCATTER,
        f"Over {EPOCHS} epochs, the batch means scatter {scatter:.3f} times the ideal, but at most "
        f"{SCATTER} is allowed. A buffer moves most events by less than its own length, so with "
        f"at_once = {at_once} a batch contains few different energies.",
        f"Read more shards at once. There is memory for {MEMORY - memory:,} more events, a smaller "
        "buffer leaves more, and so does the smallest chunk that the limit on requests allows.",
    )
    return right(
        f"The batch means scatter {scatter:.2f} times as much as in a full shuffle, with "
        f"{memory:,} of {EVENTS:,} events in memory and {requests:,} requests."
    )


def _whole(name: str, value: Any, most: int) -> int:
    misconception = f"{name} = {value!r}, but it must be a whole number from 1 to {most:,}."
    next_step = f"Write for example {name} = 20. A buffer of 1 event does not shuffle."
    number = read_whole(value, misconception, next_step)
    expect(1 <= number <= most, misconception, next_step)
    return number
