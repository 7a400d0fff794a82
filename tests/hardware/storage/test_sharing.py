"""Real processes on one storage: only ratios, so that a busy machine does not matter."""

import multiprocessing
from dataclasses import replace
from time import perf_counter_ns

import pytest

from course_utils.hardware.storage import slow_storage, storage_preset

LUSTRE = storage_preset("busy Lustre")
PIECE, PIECES, PROCESSES = 2**18, 19, 4


@pytest.mark.slow
@pytest.mark.alone
def test_processes_share_the_link_the_counters_and_the_cache(tmp_path, start_method):
    fs = slow_storage(tmp_path, replace(LUSTRE, mb_s=40, stream_mb_s=40))
    for index in range(PROCESSES):
        (tmp_path / f"part-{index}").write_bytes(bytes(PIECES * PIECE))
    context = multiprocessing.get_context(start_method)
    barrier, times = context.Barrier(PROCESSES), context.Queue()
    readers = [
        context.Process(target=read, args=(fs, index, barrier, times)) for index in range(PROCESSES)
    ]
    for reader in readers:
        reader.start()
    starts, ends = zip(*[times.get(timeout=120) for _ in readers], strict=True)
    for reader in readers:
        reader.join()
    rate = PROCESSES * PIECES * PIECE / (max(ends) - min(starts)) * 1e9
    assert 0.7 < rate / 40e6 < 1.05
    counters = fs.counters()
    assert (counters.opens, counters.bytes_used) == (PROCESSES, PROCESSES * PIECES * PIECE)
    fs.cat_file("part-0")  # another process has read it into the common page cache
    assert fs.counters().bytes_read == counters.bytes_read


def read(fs, index, barrier, times):
    with fs.open(f"part-{index}") as file:
        barrier.wait()
        start = perf_counter_ns()
        while file.read(PIECE):
            pass
        times.put((start, perf_counter_ns()))
