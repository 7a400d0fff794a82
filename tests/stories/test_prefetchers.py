"""The loader that is watched, the designs on the way, and the ten defects."""

import math
import threading
from functools import partial

import pytest

from notebooks.stories.prefetchers import (
    NotesPrefetcher,
    Trial,
    default_stream,
    prove_all,
    side_stream,
    side_stream_with_wait,
)
from notebooks.stories.prefetchers.bench import BATCH_BYTES, Machine, Source, make_pairs
from notebooks.stories.prefetchers.defects import Again
from notebooks.stories.prefetchers.trial import watch


def test_the_epoch_decides_the_order_and_who_was_left_open_is_known():
    numbers = Source(range(8), pinned=False)
    numbers.set_epoch(1)
    iterator = iter(numbers)
    assert [next(iterator) for _ in range(6)] == [3, 4, 5, 6, 7, 0]
    assert (numbers.is_open, numbers.served.value) == (True, 6)
    iterator.close()
    assert not numbers.is_open
    source = Source(make_pairs())
    assert source.checksums(1) == source.checksums(0)[3:] + source.checksums(0)[:3]


def test_a_batch_has_the_bytes_it_is_counted_by():
    gpu = Machine().gpus[0]
    (batch,) = make_pairs(1)
    uploaded = gpu.upload(batch)
    assert gpu.memory_allocated() == BATCH_BYTES
    del uploaded


@pytest.mark.slow
def test_the_ten_defects_are_proven_by_counts_and_leave_no_thread_behind():
    before = set(threading.enumerate())
    defects = prove_all()
    assert [defect.number for defect in defects] == list(range(1, 11))
    assert all(defect.proven for defect in defects), defects
    assert all(defect.notes != defect.ours for defect in defects)
    assert defects[3].ours == "3 batches, then DiskError: the disk is gone"
    assert defects[4].notes == "2 epochs of 8: 8 batches, then it hangs"
    assert defects[5].notes == "after break: thread alive, 5 batches kept, loader open"
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.parametrize("count", [2, 6])
def test_an_epoch_of_the_notes_ends_whatever_the_queue_holds(count):
    seen = watch(NotesPrefetcher, Trial(partial(make_pairs, count)))
    assert (seen.ending, seen.spoilt) == (f"{count} batches", 0)


def test_one_stream_hides_nothing_two_without_a_wait_read_garbage_and_with_one_all_is_right():
    twenty = Trial(make_pairs, epochs=20, timed=True)
    one = watch(partial(Again, default_stream), twenty)
    assert (one.hidden, one.spoilt) == (0, 0)
    assert all(map(math.isnan, watch(partial(Again, side_stream), Trial(make_pairs)).found))
    assert watch(partial(Again, side_stream_with_wait), twenty).spoilt == 0  # each loss is read


@pytest.mark.parametrize("design", [default_stream, side_stream_with_wait])
@pytest.mark.parametrize("count", [0, 1])
def test_a_design_serves_a_short_epoch(design, count):
    seen = watch(partial(Again, design), Trial(partial(make_pairs, count)))
    assert seen.ending == f"{count} batches"
