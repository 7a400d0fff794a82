"""The memory of batches and of processes."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import psutil
import pytest
import torch

from course_utils.errors import CourseError
from course_utils.loading.workers import (
    Budget,
    in_flight_bytes,
    nbytes,
    share_mb,
    shm_free,
    unique_mb,
)
from course_utils.loading.workers.memory import affordable_workers

KB = torch.zeros(250)  # 1,000 bytes


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclass
class Batch:
    x: Any
    y: Any


@pytest.mark.parametrize(
    ("batch", "size"),
    [
        (KB, 1000),
        ([KB, torch.zeros(250)], 2000),
        ({"a": KB, "b": {"c": (torch.zeros(2),)}}, 1008),
        (Pair(KB, torch.zeros(1)), 1004),
        (Batch(KB, [np.zeros(2)]), 1016),
        (np.zeros(10)[::2], 40),
        (np.float32(1), 4),
        (["ab", "é", b"123"], 7),
        ([1, 2.5, None, True], 0),
        ({}, 0),
    ],
)
def test_every_part_of_a_batch_counts(batch: Any, size: int) -> None:
    assert nbytes(batch) == size


def test_a_view_counts_with_all_that_it_takes_along() -> None:
    clip = torch.zeros(64, 100)
    assert nbytes(clip[0]) == clip.nbytes
    assert nbytes(clip[0].clone()) == 400


def test_what_two_tensors_share_counts_once() -> None:
    assert nbytes([KB[:10], KB[10:], KB]) == 1000


def test_sparse_tensors_count_with_their_parts() -> None:
    sparse = torch.eye(4).to_sparse()
    assert nbytes(sparse) == 4 * 2 * 8 + 4 * 4


def test_each_worker_keeps_its_batches_ready_and_one_is_in_use() -> None:
    assert in_flight_bytes(KB, 4, 3) == 13_000
    assert in_flight_bytes(KB, 4) == in_flight_bytes(KB, 4, 2) == 9000
    assert in_flight_bytes(KB, 0) == 1000


@pytest.mark.parametrize("limit", [0, 999, 1000, 2999, 3000, 9_000, 12_345])
@pytest.mark.parametrize("prefetch", [1, 2, 5])
def test_one_more_than_the_affordable_workers_would_not_fit(limit: int, prefetch: int) -> None:
    workers = affordable_workers(KB, limit, prefetch).num_workers
    assert workers == 0 or in_flight_bytes(KB, workers, prefetch) <= limit
    assert in_flight_bytes(KB, workers + 1, prefetch) > limit


def test_no_more_workers_than_asked_for() -> None:
    assert affordable_workers(KB, 10**9, at_most=6).num_workers == 6
    assert affordable_workers([], 10**9, at_most=6).num_workers == 6


def test_a_budget_says_how_it_comes_about() -> None:
    assert Budget(48_000_000, 1, 2).sentence == (
        "1 worker × 2 prefetched + 1 in use = 3 batches of 48.0 MB: 144 MB."
    )
    assert repr(affordable_workers(KB, 9999)) == (
        "4 workers × 2 prefetched + 1 in use = 9 batches of 0.0 MB: 0.0 MB of the 0.0 MB there are."
    )


def test_memory_of_a_process_of_its_own_is_told() -> None:
    program = "x = bytearray(60_000_000)\nprint(1, flush=True)\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        process.stdout.readline()
        assert 60 < unique_mb(process.pid) < 120
        assert share_mb(process.pid) >= unique_mb(process.pid)
        process.communicate(b"\n")
    assert unique_mb(process.pid) == 0


def test_a_process_that_hides_its_memory_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_process: psutil.Process) -> None:
        raise psutil.AccessDenied

    monkeypatch.setattr(psutil.Process, "memory_full_info", refuse)
    with pytest.raises(CourseError, match=f"does not tell the memory of process {os.getpid()}"):
        unique_mb(os.getpid())


def test_shared_memory_is_told_where_there_is_any() -> None:
    free = shm_free()
    assert (free is not None and free > 0) == os.path.isdir("/dev/shm")
