"""What fits into the shared memory of a node."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
import torch

from course_utils.hardware.machine import facts as machine_facts
from course_utils.loading.workers import Budget, ShmBudget, shm_budget

MB = 10**6
NODE = ShmBudget(  # 4 × (8 × 2 + 1) × 48 MB = 3,264 MB of batches
    Budget(48 * MB, 8, 2), memory_bytes=64_000 * MB, shm_bytes=32_000 * MB, loaders=4
)


def test_every_rank_has_its_batches_on_the_way() -> None:
    assert NODE.travelling_bytes == 3264 * MB
    assert replace(NODE, loaders=1).travelling_bytes == 816 * MB


def test_without_workers_no_batch_travels() -> None:
    assert replace(NODE, batches=Budget(48 * MB, 0)).travelling_bytes == 0


@pytest.mark.parametrize(
    ("change", "stageable_mb"),
    [
        ({}, 32_000 - 3264),
        ({"shm_bytes": None}, 64_000 - 3264),
        ({"programs_bytes": 40_000 * MB}, 24_000 - 3264),
        ({"shm_bytes": 64 * MB}, 0),
        ({"programs_bytes": 70_000 * MB}, 0),
    ],
)
def test_the_smaller_of_shm_and_memory_decides(change: dict[str, int], stageable_mb: int) -> None:
    assert replace(NODE, **change).stageable_bytes == stageable_mb * MB


@pytest.mark.parametrize("programs", [0, 40_000 * MB])
def test_what_may_be_staged_fits_and_a_byte_more_does_not(programs: int) -> None:
    node = replace(NODE, programs_bytes=programs)
    assert replace(node, staged_bytes=node.stageable_bytes).fits
    assert not replace(node, staged_bytes=node.stageable_bytes + 1).fits


def test_a_container_with_64_mb_does_not_fit_its_batches() -> None:
    assert not replace(NODE, shm_bytes=64 * MB).fits


def test_this_machine_is_asked_for_its_memory() -> None:
    budget = shm_budget(torch.zeros(250), 2, staged_bytes=5, loaders=3)
    assert budget.travelling_bytes == 3 * 5 * 1000
    assert budget.memory_bytes == machine_facts.memory()
    assert (budget.shm_bytes is not None) == os.path.isdir("/dev/shm")
    assert budget.fits


def test_a_budget_says_how_it_comes_about() -> None:
    assert repr(replace(NODE, staged_bytes=30_000 * MB)) == (
        "4 loaders with 3.3 GB of batches, 30.0 GB staged and programs of 0.0 MB: does not fit "
        "into /dev/shm of 32.0 GB and memory of 64.0 GB, where 28.7 GB may be staged."
    )
    assert "no /dev/shm" in repr(replace(NODE, shm_bytes=None))
