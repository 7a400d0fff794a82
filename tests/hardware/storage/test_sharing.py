"""Real processes on one storage: only ratios, so that a busy machine does not matter."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.storage import rate_together
from course_utils.hardware.storage import slow_storage, storage_preset

LUSTRE = storage_preset("busy Lustre")


@pytest.mark.slow
@pytest.mark.alone
def test_processes_together_do_not_exceed_the_link(tmp_path, start_method):
    fs = slow_storage(tmp_path, replace(LUSTRE, mb_s=40, stream_mb_s=40))
    rate = rate_together(fs, 4, total=20_000_000, piece=2**18, start_method=start_method)
    assert 0.7 < rate / 40e6 < 1.05


@pytest.mark.full
@pytest.mark.alone
def test_latency_bound_reading_scales_with_processes(tmp_path):
    preset = replace(LUSTRE, request_ms=40, cache_mb=0, requests_at_once=4)

    def rate(processes):
        fs = slow_storage(tmp_path, preset)
        reads = 15 * min(4, processes)
        return rate_together(fs, processes, total=1024 * reads, piece=1024, shuffled=True)

    alone, four, eight = rate(1), rate(4), rate(8)
    assert 3 < four / alone < 4.2
    assert 0.7 < eight / four < 1.2
