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
