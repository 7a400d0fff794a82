"""Check that prefetchers leave no thread behind."""

import threading
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _no_thread_stays_behind() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    left = set(threading.enumerate()) - before
    # The threads that feed the queues of a loader's workers end a little later.
    assert not [thread for thread in left if thread.name != "QueueFeederThread"]
