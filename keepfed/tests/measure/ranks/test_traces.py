from pathlib import Path
from unittest.mock import patch

import pytest

from keepfed.errors import KeepfedError
from keepfed.measure.picture import as_text
from keepfed.measure.ranks import load_ranks, save_rank
from keepfed.measure.spans import OTHERS, reach
from tests.measure.handmade import span, trace_of


def save(folder: Path, rank: int, start_ms: float, ids: list[int], ranks: int = 2) -> None:
    """Save the trace of a rank whose first batch starts at `start_ms`."""
    trace = trace_of(
        span("main", "wait", start_ms, start_ms + 10, 0),
        span("gpu", "compute", start_ms + 10, start_ms + 30, 0),
        span(OTHERS, "wait", start_ms + 30, start_ms + 40, 0),
    )
    trace.serve(len(ids), ids)
    trace.served = 1
    with (
        patch("torch.distributed.is_initialized", return_value=True),
        patch("torch.distributed.get_rank", return_value=rank),
        patch("torch.distributed.get_world_size", return_value=ranks),
    ):
        save_rank(trace, folder)


def test_time_begins_with_the_first_rank(tmp_path: Path) -> None:
    for rank, start_ms in ((0, 5_007), (1, 5_000), (2, 5_001), (3, 5_100)):
        save(tmp_path, rank, start_ms, [], ranks=4)
    ranks = load_ranks(tmp_path)
    assert [trace.spans[0].start_ns for trace in ranks.traces] == [7e6, 0, 1e6, 100e6]
    assert [reach(trace) for trace in ranks.traces] == [(0, ms * 1e6) for ms in (47, 40, 41, 140)]
    text = as_text(ranks.timeline().picture)
    assert OTHERS in text
    assert "rank 3" in text


def test_samples_of_all_ranks_are_counted_together(tmp_path: Path) -> None:
    save(tmp_path, 0, 0, [1, 2, 3])
    save(tmp_path, 1, 0, [3, 4, 5])
    ranks = load_ranks(tmp_path)
    assert ranks.served == {1: 1, 2: 1, 3: 2, 4: 1, 5: 1}
    assert str(ranks).startswith("2 ranks served 6 samples, only 5 distinct.\n")


def test_files_of_an_older_run_are_ignored(tmp_path: Path) -> None:
    for rank in range(3):
        save(tmp_path, rank, 0, [], ranks=3)
    for rank in range(2):
        save(tmp_path, rank, 9_000, [])
    assert len(load_ranks(tmp_path).traces) == 2


def test_missing_trace_raises_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeepfedError, match="trace of rank 0 is missing"):
        load_ranks(tmp_path)
    save(tmp_path, 0, 0, [], ranks=3)
    save(tmp_path, 2, 0, [], ranks=3)
    with pytest.raises(KeepfedError, match="trace of rank 1 is missing"):
        load_ranks(tmp_path)
