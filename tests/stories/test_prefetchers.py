"""The test bench for prefetchers, the intermediate designs, and the ten defects."""

import math
import threading
from contextlib import closing, suppress
from functools import partial

import pytest

from course_utils.stories.prefetchers import PrefetcherTrial, SideStream, prove_all
from course_utils.stories.prefetchers.bench import make_pairs
from course_utils.stories.prefetchers.defects import QUEUE, on_current
from course_utils.stories.prefetchers.trial import Timeouts, TrialRun
from keepfed.measure.spans import current


@pytest.mark.slow
def test_ten_defects_are_proven_and_leave_no_threads():
    before = set(threading.enumerate())
    defects = prove_all()
    assert [defect.number for defect in defects] == list(range(1, 11))
    assert all(defect.proven for defect in defects), defects
    assert all(defect.theirs != defect.ours for defect in defects)
    assert defects[3].ours == "then it gets: the error of the loader"
    assert defects[4].theirs == "the loop hangs: True"
    assert defects[5].theirs == "threads left: 1"
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
        assert not thread.is_alive()


def never(loader, devices):
    while True:
        with suppress(Exception):
            next(iter(()))
    yield


def test_endless_loop_stops_computing_after_the_check():
    before, recording = set(threading.enumerate()), current()
    with closing(TrialRun(never, PrefetcherTrial(), Timeouts(hang=0.1))) as seen:
        assert seen.hung
        assert current() is recording
        (thread,) = set(threading.enumerate()) - before
    thread.join(30)
    assert not thread.is_alive()


def test_side_stream_needs_a_wait_for_right_results():
    waiting = on_current(SideStream, wait=True)
    with closing(TrialRun(on_current(SideStream), PrefetcherTrial(make_pairs))) as seen:
        assert all(map(math.isnan, seen.found))
    for count, make in (0, waiting), (1, waiting), (8, waiting), (2, QUEUE):
        with closing(TrialRun(make, PrefetcherTrial(partial(make_pairs, count)))) as seen:
            assert (seen.counts, seen.wrong_epochs, seen.hung) == ([count], 0, False)
