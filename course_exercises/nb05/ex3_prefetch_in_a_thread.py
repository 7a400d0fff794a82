"""05.3: a prefetcher in a thread, judged by counts and events, never by speed."""

import time
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import repeat, zip_longest
from typing import Any

import numpy as np

from course_stories.prefetchers import (
    Clause,
    DiskError,
    Make,
    PrefetcherTrial,
    Violation,
    check_all,
    hangs,
)
from course_utils.teaching.exercise import Verdict, exercise, right

# whatever may lie in a batch, nothing is special
NOTHING = (0, None, "", False, ())
ITEMS = (*NOTHING, 5, np.arange(2), ValueError("this is an item of the source, like any other"))
PAUSE_S = 2.2  # more than the second or two that are often taken for long enough


def _runs_ahead(depth: int) -> Clause:
    asked = f"asked to load {depth} ahead"
    return Clause(
        PrefetcherTrial(lambda: None, gpus=0, depth=depth, ahead=depth, leave_after=1),
        Violation(
            lambda seen: seen.hung and not seen.leaving,
            "The first item never arrives: the whole source is read before, and it may be endless.",
            "Hand over an item as soon as there is one.",
        ),
        Violation(
            lambda seen: seen.ahead < depth,
            "While the loop is busy with an item, the thread has {seen.ahead} ready or in "
            f"hand; {asked}. The two take turns instead of working at the same time.",
            "Start the thread once, let it run on, and wait only for the next item.",
        ),
        Violation(
            lambda seen: seen.ahead > depth + 1,
            "While the loop is busy with an item, {seen.ahead} more are taken from the "
            f"source; {asked}, {depth + 1} are the most. An unlimited queue fills the memory.",
            "Queue(maxsize=depth) makes the thread wait when it is far enough ahead; no put() may "
            "give up.",
        ),
    )


def _left_near_the_end(items: int, fails_at: int | None = None) -> Clause:
    """Leave when the source is through, and the thread still has the rest in hand."""
    return Clause(
        PrefetcherTrial(
            lambda: range(items),
            pinned=False,
            gpus=0,
            depth=1,
            fails_at=fails_at,
            ahead=1,
            leave_after=1,
        ),
        Violation(
            lambda seen: seen.hung or seen.threads,
            "A break shortly before the end, where the source is through already: the thread stays "
            "for ever, and waits for room for the mark of the end, or for the exception.",
            "Send these like the items: put(..., timeout=0.1) again and again, until there is room "
            "or `stop` is set.",
        ),
    )


CLAUSES = (
    Clause(
        PrefetcherTrial(lambda: ITEMS, pinned=False, gpus=0, depth=20),  # the queue is never full
        hangs(
            "The loop never ends: the thread is through, and the consumer still waits for more.",
            "Put an object of your own behind the last item, and stop when it arrives.",
        ),
        Violation(
            lambda seen: not {*map(repr, NOTHING)} <= {*map(repr, seen.found)},
            "{seen.wanted} items go in, {seen.count} come out. None, 0 and an empty list are items "
            "like others; they do not mean the end.",
            "Mark the end with an object of your own, end = object(), and compare with `is`.",
        ),
        Violation(
            lambda seen: seen.count != seen.wanted,
            "{seen.wanted} items go in, {seen.count} come out: {seen.found}.",
            "Hand over what the source gives, and nothing else; the mark of the end is not an "
            "item, and comes behind the last one.",
        ),
        Violation(
            lambda seen: repr(seen.found) != repr([*ITEMS]),
            f"The items come out changed or in another order: {{seen.found}} for {[*ITEMS]}.",
            "One thread and one queue.Queue keep the order; hand over the items themselves.",
        ),
    ),
    _runs_ahead(1),
    _runs_ahead(3),
    Clause(
        PrefetcherTrial(lambda: ITEMS, pinned=False, gpus=0, depth=2, epochs=3),
        hangs(
            "The second epoch waits for ever. The thread was started once, in __init__, and is "
            "gone.",
            "Start a thread, with a queue of its own, in every __iter__.",
        ),
        Violation(
            lambda seen: seen.counts != [seen.wanted] * 3,
            "Three epochs serve {seen.counts} items; each has {seen.wanted}. Something of the "
            "first is used up, or left in the queue.",
            "Make the queue and the thread, and begin the source anew, in every __iter__.",
        ),
    ),
    Clause(
        PrefetcherTrial(lambda: ITEMS, pinned=False, gpus=0, depth=1, fails_at=1),
        hangs(
            "The source raises, and the loop waits for ever. An exception ends the thread it is "
            "raised in, and nobody tells the consumer.",
            "Catch it in the thread, send it through the queue, and raise it in the consumer.",
        ),
        Violation(
            lambda seen: seen.error is None,
            "The source gives an item and raises then, and the loop ends after {seen.count} as if "
            "all were well. A broken file becomes a short epoch.",
            "Send the exception through the queue, and raise it in the consumer.",
        ),
        Violation(
            lambda seen: seen.error is not seen.source.error,
            "The source raises a DiskError, the loop gets another exception, {seen.said}.",
            "Raise the very exception that the thread caught: its traceback tells where it was.",
        ),
        Violation(
            lambda seen: seen.count != 1,
            "The source gives 1 item and raises then; the loop gets {seen.count} items.",
            "Send the exception through the same queue, behind the items.",
        ),
    ),
    Clause(
        PrefetcherTrial(lambda: None, gpus=0, depth=2, ahead=2, leave_after=3),
        hangs(
            "The loop does not get out of its break: it waits for a thread that waits for room in "
            "the queue.",
            "Tell the thread to stop, and let it look while it waits: put(item, timeout=0.1).",
        ),
        Violation(
            lambda seen: seen.threads,
            "Long after a break the thread is still there, {seen.busy}: an endless source, its "
            "files and its workers stay too.",
            "In __iter__, put the loop into try ... finally, set a threading.Event there, and let "
            "the thread look at it: put(item, timeout=0.1) in a loop.",
        ),
        Violation(
            lambda seen: seen.is_open,
            "After a break the thread is gone, but the source is still open: somebody holds its "
            "iterator.",
            "Keep iter(source) in the thread's function alone, or close it there.",
        ),
    ),
    _left_near_the_end(2),
    _left_near_the_end(3),
    _left_near_the_end(3, fails_at=2),
)


def _numbers(*, fails: bool = False, pause_s: float = 0.0) -> Iterator[int]:
    yield 0
    time.sleep(pause_s)
    yield from (1, 2)
    if fails:
        raise DiskError("the disk is gone")
    time.sleep(pause_s / 10)  # to end takes a moment too


class _FailsOnce:
    """A source whose first epoch ends with an error, and no other."""

    failed = False

    def __iter__(self) -> Iterator[int]:
        fails, self.failed = not self.failed, True
        return _numbers(fails=fails)


def _and_the_error(loop: Iterable[Any]) -> Iterator[Any]:
    try:
        yield from loop
    except (TypeError, DiskError) as error:
        yield type(error)


def _loops(make: Make, source: Any, depth: int) -> Iterator[Any]:
    """Run a loop within a loop; several beside a slow one; and two where the source fails once."""
    twice = make(source, depth)
    outer = iter(twice)
    yield next(outer)
    yield from (*twice, *outer)
    broken, slow = _numbers(fails=True), _numbers(pause_s=PAUSE_S)
    sources = {"none": None, "long": range(4), "short": range(3), "broken": broken, "slow": slow}
    for row in zip_longest(*(_and_the_error(make(one, depth)) for one in sources.values())):
        yield from zip(sources, row, strict=True)
    mended = make(_FailsOnce(), depth)
    yield from zip(repeat("failed"), _and_the_error(mended))
    yield from zip(repeat("mended"), _and_the_error(mended))


SEVERAL_LOOPS = Clause(
    PrefetcherTrial(lambda: range(3), pinned=False, gpus=0, depth=1),
    Violation(
        lambda seen: seen.found[:6] != [0, 0, 1, 2, 1, 2],
        "Two loops over the same prefetcher, one within the other or right after a break, take "
        "each other's items or stop each other: the queue, the event or the thread is in self.",
        "Make all three in every __iter__, and keep them in local variables.",
    ),
    Violation(
        lambda seen: ("none", TypeError) not in seen.found,
        "The source is None, iter(source) raises, and the loop waits for ever, or ends as if all "
        "were well: iter(source) stands before the `try`.",
        "Put all that the thread does with the source into the `try`.",
    ),
    Violation(
        lambda seen: seen.hung or not {("long", 3), ("broken", DiskError)} <= {*seen.found},
        "The loop is busy for a while, or the source takes a moment to end, and then something "
        "never comes: an item, the exception or the end. A put with a timeout threw it away, or "
        "nobody tells a loop that waits already of the end.",
        "Put again and again, whatever it is, until there is room or `stop` is set; and put an "
        "object of your own behind the last item.",
    ),
    Violation(
        lambda seen: ("mended", DiskError) in seen.found,
        "The source fails in one epoch and is whole in the next, and the loop gets the exception "
        "of the first once more: it is kept in self.",
        "Send the exception through the queue of its own epoch, and keep nothing in self.",
    ),
    Violation(
        lambda seen: ("broken", 2) not in seen.found,
        "The source gives 3 items and raises then, and a slow loop gets fewer of them: the "
        "exception overtakes items that wait in the queue.",
        "Send the exception through the same queue, behind the items, and look nowhere else.",
    ),
    Violation(
        lambda seen: ("slow", 2) not in seen.found,
        "The source is silent for a while, and the loop takes that for the end.",
        "Wait as long as it takes: get() without a timeout.",
    ),
)


@exercise("05.3", title="Prefetch in a thread", seconds=180)
def prefetch_in_a_thread(prefetcher_class: Make) -> Verdict:
    """Judge a prefetcher: order, how far ahead, two epochs, an exception, and leaving early."""
    check_all(prefetcher_class, CLAUSES)
    check_all(partial(_loops, prefetcher_class), [SEVERAL_LOOPS])
    return right(
        "Everything arrives in order and ahead of time, twice if asked twice; an exception reaches "
        "the loop, and a break leaves no thread behind."
    )
