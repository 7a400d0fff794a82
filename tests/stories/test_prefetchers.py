"""The loader that is watched, what is seen of a loop, and the ten defects."""

import math
import threading
from functools import partial

import pytest

from notebooks.stories.prefetchers import (
    DiskError,
    NotesPrefetcher,
    Trial,
    default_stream,
    prove_all,
    side_stream,
    side_stream_with_wait,
)
from notebooks.stories.prefetchers.bench import (
    BATCH_BYTES,
    Machine,
    Source,
    make_pairs,
    make_tensors,
)
from notebooks.stories.prefetchers.defects import Again
from notebooks.stories.prefetchers.trial import watch

PAIRS = Trial(make_pairs)


@pytest.mark.parametrize("make", [make_tensors, make_pairs])
def test_a_batch_has_the_bytes_it_is_counted_by(make):
    gpu = Machine().gpus[0]
    batch = gpu.upload(make(1)[0])
    assert gpu.memory_allocated() == BATCH_BYTES
    del batch


def test_the_epoch_decides_the_order_of_batches_and_checksums():
    numbers = Source(range(8), pinned=False)
    numbers.set_epoch(1)
    assert list(numbers) == [3, 4, 5, 6, 7, 0, 1, 2]
    source = Source(make_pairs())
    first, second = source.checksums(0), source.checksums(1)
    assert second == first[3:] + first[:3]


def test_a_source_knows_whether_it_was_left_open():
    source = Source(make_tensors(3))
    iterator = iter(source)
    next(iterator)
    assert (source.is_open, source.served.value) == (True, 1)
    iterator.close()
    assert not source.is_open


def test_a_source_that_fails_is_closed():
    source = Source(make_tensors(3), fails_at=2)
    with pytest.raises(DiskError):
        list(source)
    assert (source.is_open, source.served.value) == (False, 2)


def test_an_endless_source_ends_when_it_is_abandoned():
    source = Source(None)
    numbers = iter(source)
    assert [next(numbers), next(numbers)] == [0, 1]
    source.abandoned.set()
    assert list(numbers) == []


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


@pytest.mark.parametrize("count", [2, 3, 6, 7])
def test_an_epoch_of_the_notes_ends_whatever_the_queue_holds(count):
    seen = watch(NotesPrefetcher, Trial(partial(make_pairs, count)))
    assert (seen.ending, seen.spoilt) == (f"{count} batches", 0)


def test_on_the_default_stream_nothing_is_hidden_and_all_is_right():
    seen = watch(partial(Again, default_stream), Trial(make_pairs, epochs=20, timed=True))
    assert (seen.hidden, seen.spoilt) == (0, 0)


def test_without_a_wait_every_step_reads_garbage():
    seen = watch(partial(Again, side_stream), PAIRS)
    assert all(map(math.isnan, seen.found))


def test_without_record_stream_all_is_right_as_long_as_each_loss_is_read():
    seen = watch(partial(Again, side_stream_with_wait), Trial(make_pairs, epochs=20))
    assert seen.spoilt == 0


@pytest.mark.parametrize("design", [default_stream, side_stream, side_stream_with_wait])
@pytest.mark.parametrize("count", [0, 1])
def test_a_design_serves_a_short_epoch(design, count):
    seen = watch(partial(Again, design), Trial(partial(make_pairs, count)))
    assert seen.ending == f"{count} batches"
