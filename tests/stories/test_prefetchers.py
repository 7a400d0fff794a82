"""The test bench for prefetchers, the intermediate designs, and the ten defects."""

import math
import sys
import threading
from _thread import interrupt_main
from contextlib import closing, suppress
from functools import partial

import pytest

from course_utils.stories.prefetchers import NotesPrefetcher, PrefetcherTrial, SideStream, prove_all
from course_utils.stories.prefetchers.bench import BenchSource, make_pairs
from course_utils.stories.prefetchers.defects import on_current
from course_utils.stories.prefetchers.trial import Timeouts, TrialRun


def test_source_order_depends_on_epoch_and_open_iterators_count():
    numbers = BenchSource(range(8), pinned=False)
    numbers.set_epoch(1)
    iterator = iter(numbers)
    assert [next(iterator) for _ in range(6)] == [3, 4, 5, 6, 7, 0]
    assert (numbers.begun.value, numbers.served.value, numbers.closed.value) == (1, 6, 0)
    iterator.close()
    assert numbers.closed.value == 1
    source = BenchSource(make_pairs())
    assert source.checksums(1) == source.checksums(0)[3:] + source.checksums(0)[:3]


@pytest.mark.slow
def test_ten_defects_are_proven_and_leave_no_threads():
    before = set(threading.enumerate())
    defects = prove_all()
    assert [defect.number for defect in defects] == list(range(1, 11))
    assert all(defect.proven for defect in defects), defects
    assert all(defect.notes != defect.ours for defect in defects)
    assert defects[0].ours == "overlap of the copies after the first: 100 %"
    assert defects[3].ours == "3 batches, then DiskError: the disk is gone"
    assert defects[4].notes == "2 epochs of 8: 8 batches, then it hangs"
    assert defects[5].notes == "after break: thread alive, 5 batches kept, loader open"
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.parametrize("count", [2, 6])
def test_notes_prefetcher_ends_epoch_with_any_queue_size(count):
    seen = TrialRun(NotesPrefetcher, PrefetcherTrial(partial(make_pairs, count)))
    assert (seen.ending, seen.wrong_epochs) == (f"{count} batches", 0)


def never(loader, devices):
    while True:
        with suppress(Exception):
            next(iter(()))
    yield


def test_endless_loop_stops_computing_after_the_check():
    before = set(threading.enumerate())
    with closing(TrialRun(never, PrefetcherTrial(), Timeouts(hang=0.1))) as seen:
        assert seen.hung
        (thread,) = set(threading.enumerate()) - before
    thread.join(30)
    assert not thread.is_alive()


def interrupted(loader, devices):
    interrupt_main()
    yield from never(loader, devices)


def test_endless_loop_stops_after_interrupted_check():
    before = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt):
        TrialRun(interrupted, PrefetcherTrial())
    for thread in set(threading.enumerate()) - before:
        thread.join(30)
        assert not thread.is_alive()


def asleep(loader, devices):
    threading.Event().wait()
    yield


def trace_a_call():
    sys.settrace(lambda frame, event, argument: None)
    (lambda: None)()


def test_waiting_loop_does_not_block_tracing_of_threads():
    with closing(TrialRun(asleep, PrefetcherTrial(), Timeouts(hang=0.1))) as seen:
        assert seen.hung
    thread = threading.Thread(target=trace_a_call, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()


WAITING = on_current(SideStream, wait=True)


def test_second_stream_needs_a_wait_for_right_results():
    assert all(map(math.isnan, TrialRun(on_current(SideStream), PrefetcherTrial(make_pairs)).found))
    assert (
        TrialRun(WAITING, PrefetcherTrial(make_pairs, epochs=20)).wrong_epochs == 0
    )  # each loss is read


@pytest.mark.parametrize("count", [0, 1])
def test_side_stream_serves_short_epochs(count):
    assert (
        TrialRun(WAITING, PrefetcherTrial(partial(make_pairs, count))).ending == f"{count} batches"
    )
