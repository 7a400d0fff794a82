import gc
import multiprocessing
import threading
import traceback
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from course_utils.loading.prefetch import ThreadPrefetcher


class Source:
    """Counts what was made and tells when an iterator of it was closed."""

    def __init__(self, length: int, fails_at: int = -1):
        self.length, self.fails_at = length, fails_at
        self.made = 0
        self.closed = 0
        self.progress = threading.Condition()

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[int]:
        try:
            for number in range(self.length):
                if number == self.fails_at:
                    raise OSError("sample 3 is broken")
                with self.progress:
                    self.made += 1
                    self.progress.notify_all()
                yield number
        finally:
            self.closed += 1

    def wait_until_made(self, count: int) -> bool:
        with self.progress:
            return self.progress.wait_for(lambda: self.made >= count, timeout=60)


@pytest.fixture(autouse=True)
def no_thread_stays_behind() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    left = set(threading.enumerate()) - before
    # the threads that feed the queues of a loader's workers end on their own, a little later
    assert not [thread for thread in left if thread.name != "QueueFeederThread"]


@pytest.mark.parametrize("depth", [1, 2, 7, 100])
def test_every_item_comes_once_and_in_order_in_every_epoch(depth: int) -> None:
    source = Source(50)
    prefetcher = ThreadPrefetcher(source, depth)

    for _ in range(3):
        assert list(prefetcher) == list(range(50))
    assert source.closed == 3


def test_the_length_is_that_of_the_source() -> None:
    assert len(ThreadPrefetcher(Source(50))) == 50
    with pytest.raises(TypeError, match="len"):
        len(ThreadPrefetcher(iter([1])))


def test_an_empty_source_gives_nothing() -> None:
    assert list(ThreadPrefetcher([])) == []


@pytest.mark.parametrize(
    "item", [None, False, (), torch.zeros(2), (1, None), ValueError("an item")]
)
def test_any_item_is_handed_on_as_it_is(item: object) -> None:
    (received,) = ThreadPrefetcher([item])

    assert received is item


def test_no_more_than_depth_items_wait_for_the_consumer() -> None:
    source = Source(100)
    for taken, _ in enumerate(ThreadPrefetcher(source, depth=3), start=1):
        assert source.made <= taken + 3

    assert source.made == 100


def test_it_runs_ahead_by_depth_items_while_the_consumer_works() -> None:
    source = Source(100)
    stream = iter(ThreadPrefetcher(source, depth=3))
    next(stream)

    assert source.wait_until_made(1 + 3)
    stream.close()  # type: ignore[attr-defined]


def test_an_error_of_the_source_comes_after_the_items_before_it() -> None:
    source, received = Source(10, fails_at=3), list[int]()
    with pytest.raises(OSError, match="sample 3 is broken"):
        received.extend(ThreadPrefetcher(source))

    assert received == [0, 1, 2]
    assert source.closed == 1


def test_the_traceback_of_an_error_shows_where_it_happened() -> None:
    with pytest.raises(OSError, match="broken") as caught:
        list(ThreadPrefetcher(Source(10, fails_at=3)))

    frames = traceback.extract_tb(caught.value.__traceback__)
    assert frames[-1].line == 'raise OSError("sample 3 is broken")'


def test_an_error_is_freed_when_it_was_handled() -> None:
    """A cycle of frame and traceback would keep workers and batches until the next collection."""

    class Heavy:
        alive = 0

        def __init__(self) -> None:
            Heavy.alive += 1

        def __del__(self) -> None:
            Heavy.alive -= 1

    def source() -> Iterator[int]:
        heavy = Heavy()
        yield 1
        raise OSError(f"broken with {type(heavy).__name__}")

    gc.collect()
    gc.disable()
    try:
        with suppress(OSError):
            list(ThreadPrefetcher(source()))
        assert Heavy.alive == 0
    finally:
        gc.enable()


def test_an_epoch_after_an_error_starts_afresh() -> None:
    source = Source(10, fails_at=3)
    prefetcher = ThreadPrefetcher(source)
    with pytest.raises(OSError, match="broken"):
        list(prefetcher)

    source.fails_at = -1
    assert list(prefetcher) == list(range(10))


def test_an_error_while_the_iterator_is_made_is_raised() -> None:
    class Broken:
        def __iter__(self) -> Iterator[int]:
            raise OSError("no such folder")

    with pytest.raises(OSError, match="no such folder"):
        list(ThreadPrefetcher(Broken()))


def test_break_ends_the_thread_and_closes_the_source() -> None:
    source = Source(1_000)
    for item in ThreadPrefetcher(source, depth=2):
        if item == 4:
            break

    assert source.closed == 1
    assert source.made <= 5 + 2


def test_an_error_in_the_loop_closes_the_source_too() -> None:
    source = Source(1_000)
    try:
        for _ in ThreadPrefetcher(source):
            raise RuntimeError("the step failed")
    except RuntimeError as error:
        error.__traceback__ = None
    assert source.closed == 1


def test_two_loops_at_once_do_not_disturb_each_other() -> None:
    prefetcher = ThreadPrefetcher(Source(20))

    assert list(zip(prefetcher, prefetcher, strict=True)) == [(n, n) for n in range(20)]


def test_an_iterator_that_was_never_asked_starts_no_thread() -> None:
    before = threading.active_count()
    stream = iter(ThreadPrefetcher(Source(10)))

    assert threading.active_count() == before
    del stream


def test_an_endless_source_can_be_used() -> None:
    def count() -> Iterator[int]:
        number = 0
        while True:
            yield number
            number += 1

    stream = iter(ThreadPrefetcher(count()))
    assert list(islice(stream, 5)) == [0, 1, 2, 3, 4]
    stream.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("depth", [0, -1])
def test_a_depth_below_one_is_refused(depth: int) -> None:
    with pytest.raises(ValueError, match="take at least 1"):
        ThreadPrefetcher([1], depth)


@pytest.mark.slow
def test_it_prefetches_from_a_loader_with_workers_and_leaves_none_behind() -> None:
    loader = DataLoader(TensorDataset(torch.arange(40)), batch_size=4, num_workers=2, timeout=120)
    prefetcher = ThreadPrefetcher(loader)

    assert len(prefetcher) == 10
    for _ in range(2):
        assert torch.cat([batch for (batch,) in prefetcher]).tolist() == list(range(40))
    for _ in prefetcher:
        break
    assert multiprocessing.active_children() == []
