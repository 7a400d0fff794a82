"""Exercise 05.3: a prefetcher in a thread, checked by counts and events and not by speed."""

import gc
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from itertools import count, zip_longest
from typing import Any
from unittest.mock import patch

import numpy as np

from course_utils.exercises.judging.compare import Slip, compare
from course_utils.exercises.judging.probes import expect_as_fast
from course_utils.stories.prefetchers import DiskError, Make, PrefetcherTrial
from course_utils.stories.prefetchers.trial import TrialRun, hidden_thread_tracebacks
from course_utils.teaching.exercise import Verdict, exercise, expect, right
from keepfed.loaders.prefetch import ThreadPrefetcher

# a batch may contain anything, so no value is special
NOTHING = (0, None, "", False, ())
ITEMS = (*NOTHING, 5, np.arange(2), ValueError("an item of the source, like all others"))
PAUSE_S = 0.6  # pause of a slow loop and of a silent source
WAIT_S = 0.3  # pauses in which the CPU time is measured
SPEED = 50  # factor by which timeouts and sleeps are shorter during a trial


def _trial(items: Any = ITEMS, **options: Any) -> PrefetcherTrial:
    return PrefetcherTrial(lambda: items, gpus=0, **options)


def _break(items: Any, ahead: int = 1, depth: int | None = 1, **options: Any) -> PrefetcherTrial:
    return _trial(items, depth=depth, ahead=ahead, **{"leave_after": 1, **options})


_REPRS = list(map(repr, ITEMS))
_LEFT: dict[str, Any] = {"threads left": 0, "the source is open": False}
_LOOPS = {
    "a loop in a loop": [0, 0, 1, 2, 1, 2],
    "iter(source) raises an error": ["TypeError"],
    "a slow loop, and a source that ends with SystemExit": [0, 1, 2, "SystemExit"],
    "a silent source": [0, 1, 2],
    "an epoch with an error": [0, 1, 2, "DiskError"],
    "the epoch after it": [0, 1, 2],
    "a break while the source is silent": ["at once"],
    "threads left": 0,
}
AHEAD = "items loaded while the loop works"
# the trial, and what the loop should observe if it does not hang
CASES: dict[str, tuple[PrefetcherTrial, dict[str, Any]]] = {
    "8 items": (_trial(depth=20), {"items": [_REPRS], "the same objects": True}),
    "an endless source and depth=1": (_break(None), {AHEAD: 1}),
    "an endless source and depth=3": (_break(None, 3, 3), {AHEAD: 3}),
    "an endless source and the default depth": (_break(None, 2, None), {AHEAD: 2}),
    "three epochs": (_trial(depth=2, epochs=3), {"items": [_REPRS] * 3}),
    "an error after 1 item": (
        _trial(depth=1, fails_at=1),
        {"error": "the one of the source", "items": [_REPRS[:1]]},
    ),
    "a break after 3 items": (_break(None, 2, 2, leave_after=3), _LEFT),
    "a break before the last item": (_break(range(2)), _LEFT),
    "a break before an error": (_break(range(3), fails_at=2), _LEFT),
    "several loops": (_trial(range(3), depth=1), _LOOPS),
}
FACTS: dict[str, Callable[[TrialRun], Any]] = {
    "the loop hangs": lambda seen: seen.hung,
    "items": lambda seen: [list(map(repr, epoch)) for epoch in seen.epochs],
    "the same objects": lambda seen: [*map(id, seen.found)] == [*map(id, ITEMS)],
    # the thread may hold one more
    AHEAD: lambda seen: seen.ahead - (seen.ahead == (seen.trial.depth or 2) + 1),
    "error": lambda seen: (
        "the one of the source" if seen.error is seen.source.error else seen.said or "none"
    ),
    "threads left": lambda seen: len(seen.threads),
    "the source is open": lambda seen: seen.is_open,
}


SLIPS = (
    Slip(
        lambda case, got, _: (
            case == "8 items"
            and not got["the loop hangs"]
            and not {*_REPRS[:5]} <= {*got["items"][0]}
        ),
        "The source yields 0, None, an empty string, False and an empty tuple, but the loop does "
        "not get all of them. They are items like all others.",
        "Mark the end with your own object, end = object(), and compare with `is`.",
    ),
    Slip(
        lambda case, got, wanted: case == "three epochs" and got != wanted,
        "The second epoch hangs, or serves different items than the first one. The thread, the "
        "queue or iter(source) was used up in the first epoch.",
        "Create the queue and the thread in every __iter__.",
    ),
    Slip(
        lambda _, got, __: got.get("error") == "none",
        "The source raises an error after 1 item, but the loop hangs or ends normally. An error "
        "ends only the thread in which it is raised.",
        "Catch it in the thread, send it through the queue, and raise it in the loop.",
    ),
    Slip(
        lambda _, got, __: "the source is open" in got and got["threads left"],
        "After {case}, the thread never ends. It waits for space in the queue, or reads on, and "
        "keeps the source and its files open.",
        "Put the loop into try ... finally, and set an Event there. In the thread, repeat "
        "put(..., timeout=0.1) until there is space or the Event is set, and then stop reading.",
    ),
)


@exercise("05.3", title="Prefetch in a thread", seconds=45)
def prefetch_in_a_thread(prefetcher_class: Make) -> Verdict:
    """Check a prefetcher: order, items ahead, three epochs, errors, and leaving early."""
    with hidden_thread_tracebacks():
        compare(partial(_observe, prefetcher_class), _wanted, CASES, *SLIPS, show=str)
        before = threading.enumerate()
        loop = iter(prefetcher_class(count(), 1))
        next(loop)
        new = {*threading.enumerate()} - {*before}
        del loop
    expect(
        all(thread.daemon for thread in new),
        "Your thread is not a daemon. If the program fails while the thread waits, Python does "
        "not exit.",
        "Create it with threading.Thread(..., daemon=True).",
    )
    _expect_idle(prefetcher_class)
    _expect_forgotten(prefetcher_class)
    expect_as_fast(
        lambda: list(prefetcher_class(_numbers(1e-3), 1)),
        lambda: list(ThreadPrefetcher(_numbers(1e-3), 1)),
    )
    return right(
        "Everything arrives in order and ahead of time in every epoch. An error reaches the loop, "
        "and a break leaves no thread behind."
    )


def _expect_idle(prefetcher_class: Make) -> None:
    """Refuse a loop or a thread that computes while it has to wait."""

    def silent() -> Iterator[int]:
        yield 0
        time.sleep(WAIT_S)
        yield from count()

    before = time.process_time()
    with closing(iter(prefetcher_class(silent(), 1))) as loop:  # type: ignore[type-var]
        next(loop), next(loop)
        time.sleep(WAIT_S)  # the queue is full
    burnt = time.process_time() - before
    expect(
        burnt < WAIT_S / 10,  # a busy machine gives less than a core
        f"In {2 * WAIT_S:.1f} s, in which the source or the loop pauses, your code computes for "
        f"{burnt:.2f} s. It asks the queue again and again, and takes the core from the workers.",
        "Call get() without a timeout, and put(..., timeout=0.1), which wait without computing.",
    )


def _expect_forgotten(prefetcher_class: Make) -> None:
    """Refuse a prefetcher that keeps what it has served."""
    prefetcher = prefetcher_class(({number} for number in range(20)), 2)
    served = [*map(weakref.ref, prefetcher)]
    gc.collect(1)  # the young objects, which is fast
    kept = sum(reference() is not None for reference in served)
    expect(
        kept <= 1,
        f"After an epoch of {len(served)} items, {kept} of them are still in memory, so memory "
        "grows with every batch.",
        "Keep no item in self or in a list.",
    )


def _wanted(case: str) -> dict[str, Any]:
    wanted = CASES[case][1]
    return wanted if wanted is _LOOPS else {"the loop hangs": False, **wanted}


def _observe(make: Make, case: str) -> dict[str, Any]:
    loop = partial(_loops, make) if case == "several loops" else make
    with _short_timeouts(), closing(TrialRun(loop, CASES[case][0])) as seen:
        if seen.error is not None and seen.trial.fails_at is None:
            raise seen.error
        return {key: FACTS[key](seen) if key in FACTS else _of(key, seen) for key in _wanted(case)}


def _of(loop: str, seen: TrialRun) -> list[Any]:
    return [item for name, item in seen.found if name == loop]


@contextmanager
def _short_timeouts() -> Iterator[None]:
    wait, sleep = threading.Condition.wait, time.sleep

    def shorter(self: threading.Condition, timeout: float | None = None) -> bool:
        return wait(self, None if timeout is None else timeout / SPEED)

    with (
        patch.object(threading.Condition, "wait", shorter),
        patch.object(queue, "time", lambda: SPEED * time.monotonic()),
        patch.object(time, "sleep", lambda seconds: sleep(seconds / SPEED)),
    ):
        yield


def _numbers(
    pause_s: float = 0, error: type | None = None, done: list[int] | None = None
) -> Iterator[int]:
    for item in range(3):
        yield item
        time.sleep(pause_s)
        if done is not None:
            done.append(item)
    if error:
        raise error("the disk is gone")


class _FailsOnce:
    error: type | None = DiskError

    def __iter__(self) -> Iterator[int]:
        error, self.error = self.error, None
        return _numbers(error=error)


def _with_error(loop: Iterable[Any]) -> Iterator[Any]:
    try:
        yield from loop
    except (Exception, SystemExit) as error:
        yield type(error).__name__


def _loops(make: Make, source: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """Yield the items of several loops, each with the name of its loop."""
    twice = make(source, depth)
    outer = iter(twice)
    for item in (next(outer), *twice, *outer):
        yield "a loop in a loop", item
    pause = SPEED * PAUSE_S
    sources = {
        "iter(source) raises an error": None,
        "a slow loop, and a source that ends with SystemExit": _numbers(error=SystemExit),
        "a silent source": _numbers(pause),  # the other loops wait for it
    }
    for row in zip_longest(*(_with_error(make(each, depth)) for each in sources.values())):
        yield from (pair for pair in zip(sources, row, strict=True) if pair[1] is not None)
    once = make(_FailsOnce(), depth)
    for name in "an epoch with an error", "the epoch after it":
        yield from ((name, item) for item in _with_error(once))
    iter(make(count(), depth))  # a thread that starts without a loop would stay
    done = list[int]()
    loop = iter(make(_numbers(pause, done=done), depth))
    next(loop)
    del loop
    yield "a break while the source is silent", "after its next item" if done else "at once"
