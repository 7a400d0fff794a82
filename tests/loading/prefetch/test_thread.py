"""What is special to prefetching in a thread."""

import threading
from collections.abc import Iterator

import pytest
import torch

from course_utils.loading.prefetch import ThreadPrefetcher


class Source:
    """Tells how many of its numbers were made."""

    def __init__(self) -> None:
        self.made = 0
        self.progress = threading.Condition()

    def __iter__(self) -> Iterator[int]:
        for number in range(100):
            with self.progress:
                self.made += 1
                self.progress.notify_all()
            yield number

    def wait_until_made(self, count: int) -> bool:
        with self.progress:
            return self.progress.wait_for(lambda: self.made >= count, timeout=60)


@pytest.mark.parametrize(
    "item", [None, False, (), torch.zeros(2), (1, None), ValueError("an item")]
)
def test_any_item_is_handed_on_as_it_is(item: object) -> None:
    (received,) = ThreadPrefetcher([item])
    assert received is item


def test_it_runs_ahead_by_depth_items_and_no_more_while_the_consumer_works() -> None:
    source = Source()
    for taken, _ in enumerate(ThreadPrefetcher(source, depth=3), start=1):
        if taken == 1:
            assert source.wait_until_made(1 + 3)
        assert source.made <= taken + 3
    assert source.made == 100


def test_an_error_while_the_iterator_is_made_is_raised() -> None:
    class Broken:
        def __iter__(self) -> Iterator[int]:
            raise OSError("no such folder")

    with pytest.raises(OSError, match="no such folder"):
        list(ThreadPrefetcher(Broken()))


def test_an_iterator_that_was_never_asked_starts_no_thread() -> None:
    before = threading.active_count()
    stream = iter(ThreadPrefetcher(Source()))
    assert threading.active_count() == before
    del stream
