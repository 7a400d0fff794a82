"""Check of notebook 05: a prefetcher in a thread, judged by counts and events, never by speed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from course_utils.teaching.exercise import (
    Verdict,
    exercise,
    expect,
    quiet_threads,
    right,
    within_limits,
)

PATIENCE_S = 10.0  # until a loop counts as hung; a right one needs milliseconds
SETTLE_S = 0.5  # how long a prefetcher may show that it loads too much

MANY = 1_000  # items after which an endless source falls silent, to spare the memory
ITEMS = (0, None, "", False, 4, (), 6, 7)  # whatever may lie in a batch, nothing is special


class DiskError(Exception):
    """What the source of the check raises."""


class Source:
    """An iterable that tells how much was taken from it, and whether it was closed.

    Without items it is endless. As a context manager it ends with the block, whoever still reads.
    """

    def __init__(self, items: tuple[Any, ...] | None = None, *, fails: bool = False):
        self.items, self.fails = items, fails
        self.taken = 0
        self.changed = threading.Condition()
        self.closed = threading.Event()
        self.abandoned = threading.Event()

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_error: object) -> None:
        self.abandoned.set()

    def __iter__(self) -> Iterator[Any]:
        try:
            for item in count() if self.items is None else self.items:
                if self.abandoned.is_set() or (self.taken == MANY and self.abandoned.wait()):
                    return
                with self.changed:
                    self.taken += 1
                    self.changed.notify_all()
                yield item
            if self.fails:
                raise DiskError("the disk is gone")
        finally:
            self.closed.set()

    def wait_until_taken(self, count: int, seconds: float) -> bool:
        """Tell whether `count` items were taken before the time was over."""
        with self.changed:
            return self.changed.wait_for(lambda: self.taken >= count, seconds)


Make = Callable[..., Any]


@exercise("05.3", title="Prefetch in a thread", seconds=180)
def prefetch_in_a_thread(prefetcher_class: Make) -> Verdict:
    """Judge a prefetcher: order, two epochs, an exception, how far ahead, and leaving early."""
    with quiet_threads():
        _judge_order(prefetcher_class)
        _judge_ahead(prefetcher_class)
        _judge_epochs(prefetcher_class)
        _judge_exception(prefetcher_class)
        _judge_break(prefetcher_class)
    return right(
        "Everything arrives in order and ahead of time, twice if asked twice; an exception reaches "
        "the loop, and a break leaves no thread behind."
    )


def _judge_order(make: Make) -> None:
    found = within_limits(
        PATIENCE_S,
        lambda _: list(make(Source(ITEMS), 2)),
        "The loop never ends: the thread is through, and the consumer still waits for more.",
        "Put an object of your own behind the last item, and stop when it arrives.",
    )
    expect(
        len(found) >= len(ITEMS),
        f"{len(ITEMS)} items go in, {len(found)} come out. None, 0 and an empty list are items "
        "like others; they do not mean the end.",
        "Mark the end with an object of your own, end = object(), and compare with `is`.",
    )
    expect(
        len(found) == len(ITEMS),
        f"{len(ITEMS)} items go in, {len(found)} come out: {found}.",
        "Hand over what the source gives, and nothing else; the mark of the end is not an item.",
    )
    expect(
        all(a is b for a, b in zip(found, ITEMS, strict=True)),
        f"The items come out changed or in another order: {found} for {list(ITEMS)}.",
        "One thread and one queue.Queue keep the order; hand over the items themselves.",
    )


def _judge_ahead(make: Make) -> None:
    for depth in (1, 3):
        with Source() as source:
            _judge_depth(make, source, depth)


def _judge_depth(make: Make, source: Source, depth: int) -> None:
    def loop(keep: list[Any]) -> tuple[bool, int]:
        items = iter(make(source, depth))
        keep.append(items)
        next(items)  # and now this consumer is busy with it
        enough = source.wait_until_taken(1 + depth, PATIENCE_S / 2)
        if enough:
            source.wait_until_taken(3 + depth, SETTLE_S)
        return enough, source.taken - 1

    enough, ahead = within_limits(
        PATIENCE_S,
        loop,
        "The first item never arrives: the whole source is read before, and it may be endless.",
        "Hand over an item as soon as there is one.",
    )
    asked = f"asked to load {depth} ahead"
    expect(
        enough,
        f"While the loop is busy with an item, the thread has {ahead} ready or in hand; {asked}. "
        "The two take turns instead of working at the same time.",
        "Start the thread once, let it run on, and wait only for the next item.",
    )
    expect(
        ahead <= depth + 1,
        f"While the loop is busy with an item, {ahead} more are taken from the source; {asked}, "
        f"{depth + 1} are the most. An unlimited queue fills the memory.",
        "Queue(maxsize=depth) makes the thread wait when it is far enough ahead.",
    )


def _judge_epochs(make: Make) -> None:
    source = Source(ITEMS)

    def loop(_: list[Any]) -> list[int]:
        items = make(source, 2)
        return [len(list(items)) for _ in range(3)]

    epochs = within_limits(
        PATIENCE_S,
        loop,
        "The second epoch waits for ever. The thread was started once, in __init__, and is gone.",
        "Start a thread, with a queue of its own, in every __iter__.",
    )
    expect(
        epochs == [len(ITEMS)] * 3,
        f"Three epochs serve {epochs} items; each has {len(ITEMS)}. Something of the first is used "
        "up, or left in the queue.",
        "Make the queue and the thread, and begin the source anew, in every __iter__.",
    )


def _judge_exception(make: Make) -> None:
    def loop(_: list[Any]) -> tuple[int, BaseException | None]:
        count = 0
        try:
            for _item in make(Source(ITEMS[:3], fails=True), 1):
                count += 1
        except BaseException as error:
            return count, error
        return count, None

    count, error = within_limits(
        PATIENCE_S,
        loop,
        "The source raises, and the loop waits for ever. An exception ends the thread it is raised "
        "in, and nobody tells the consumer.",
        "Catch it in the thread, send it through the queue, and raise it in the consumer.",
    )
    expect(
        error is not None,
        f"The source raises after 3 items, and the loop ends after {count} as if all were well. "
        "A broken file becomes a short epoch.",
        "Send the exception through the queue, and raise it in the consumer.",
    )
    expect(
        isinstance(error, DiskError),
        f"The source raises a DiskError, the loop gets {type(error).__name__}: {error}.",
        "Raise the very exception that the thread caught.",
    )
    expect(
        count == 3,
        f"The source gives 3 items and raises then; the loop gets {count} of them.",
        "Send the exception through the same queue, behind the items.",
    )


def _judge_break(make: Make) -> None:
    with Source() as source:
        _judge_leaving(make, source)


def _judge_leaving(make: Make, source: Source) -> None:
    before = set(threading.enumerate())

    def loop(_: list[Any]) -> None:
        for number in make(source, 2):
            if number == 2:
                # only a full queue shows who waits for room in it
                source.wait_until_taken(5, PATIENCE_S / 2)
                source.wait_until_taken(6, SETTLE_S)
                break

    within_limits(
        PATIENCE_S,
        loop,
        "The loop does not get out of its break: it waits for a thread that waits for room in the "
        "queue.",
        "Tell the thread to stop, and let it look while it waits: put(item, timeout=0.1).",
    )
    left = _threads_left(before)
    goes_on = left and source.wait_until_taken(source.taken + 1, 0.2)
    busy = "loading on" if goes_on else "waiting for room in a queue that nobody empties"
    expect(
        not left,
        f"Long after a break the thread is still there, {busy}: an endless source, "
        "its files and its workers stay too.",
        "In __iter__, put the loop into try ... finally, set a threading.Event there, and let the "
        "thread look at it: put(item, timeout=0.1) in a loop.",
    )
    expect(
        source.closed.wait(PATIENCE_S / 2),
        "After a break the thread is gone, but the source is still open: somebody holds its "
        "iterator.",
        "Keep iter(source) in the thread's function alone, or close it there.",
    )


def _threads_left(before: set[threading.Thread]) -> bool:
    """Tell whether a new thread is there after a time in which any right one has ended."""
    end = time.monotonic() + PATIENCE_S / 2
    while time.monotonic() < end:
        new = [thread for thread in threading.enumerate() if thread not in before]
        if not new:
            return False
        new[0].join(0.05)
    return True
