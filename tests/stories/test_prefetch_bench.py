"""The loader that is watched, and the loop that tells what its steps read."""

import math

import pytest

from notebooks.stories.prefetchers import (
    BATCH_BYTES,
    DiskError,
    Source,
    make_gpus,
    make_tensors,
    sums,
)
from notebooks.stories.prefetchers.bench import make_pairs


@pytest.mark.parametrize("make", [make_tensors, make_pairs])
def test_a_batch_has_the_bytes_it_is_counted_by(make):
    gpu = make_gpus()[0][0]
    batch = gpu.upload(make(1)[0])
    assert gpu.memory_allocated() == BATCH_BYTES
    del batch


def test_the_epoch_decides_the_order_of_batches_and_checksums():
    gpu, source = make_gpus()[0][0], Source(make_pairs())
    first = sums(gpu, map(gpu.upload, source))
    source.set_epoch(1)
    second = sums(gpu, map(gpu.upload, source))
    assert [first, second] == [source.checksums(0), source.checksums(1)]
    assert first != second
    assert sorted(first) == sorted(second)


def test_a_step_that_does_not_wait_for_its_copy_reads_garbage():
    gpu, source = make_gpus()[0][0], Source(make_tensors(2))
    batches = []
    with gpu.stream(gpu.Stream()):
        batches += [gpu.upload(batch, non_blocking=True) for batch in source]
    assert all(map(math.isnan, sums(gpu, batches)))


def test_the_loop_pauses_after_each_launch():
    gpu, steps = make_gpus()[0][0], []
    sums(gpu, map(gpu.upload, make_tensors(3)), pause=steps.append)
    assert steps == [1, 2, 3]


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
