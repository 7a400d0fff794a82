import os
from dataclasses import replace

import numpy as np
import torch

from keepfed.batches import nbytes
from keepfed.limits import memory
from keepfed.loaders.workers import ShmBudget, shm_budget, shm_free

KB = torch.zeros(250)  # 1,000 bytes
MB = 10**6
NODE = ShmBudget(  # 4 × (8 × 2 + 1) × 48 MB = 3,264 MB of batches
    48 * MB, 8, memory_bytes=64_000 * MB, shm_bytes=32_000 * MB, loaders=4
)


def test_every_part_of_a_batch_counts() -> None:
    assert nbytes({"a": KB, "b": {"c": (np.zeros(10)[::2], np.float32(1))}}) == 1044
    assert 7 <= nbytes(["ab", "é", b"123", 2.5, None, True]) < 100
    assert nbytes([KB.to_sparse(), lambda: 0]) == 0  # a function that cannot be pickled
    view = torch.zeros(64, 100)[0]
    assert (nbytes(view), nbytes(view, whole=True)) == (400, 25_600)
    assert nbytes([KB[:10], KB[10:], KB], whole=True) == 1000  # shared storage counts once


def test_smaller_of_shm_and_memory_limits_the_budget() -> None:
    assert NODE.traveling_bytes == 3264 * MB
    assert replace(NODE, loaders=1, prefetch_factor=3).traveling_bytes == 1200 * MB
    assert replace(NODE, num_workers=0).traveling_bytes == 0
    programs = {"programs_bytes": 40_000 * MB}
    for change, room_mb in ({}, 28_736), ({"shm_bytes": None}, 60_736), (programs, 20_736):
        node = replace(NODE, **change)
        assert node.room_bytes == room_mb * MB
        assert replace(node, staged_bytes=room_mb * MB).fits
        assert not replace(node, staged_bytes=room_mb * MB + 1).fits
    for change in ({"shm_bytes": 64 * MB}, {"programs_bytes": 70_000 * MB}):
        node = replace(NODE, **change)
        assert (node.room_bytes < 0, node.fits) == (True, False)  # the batches alone need too much


def test_budget_uses_this_machine_and_explains_itself() -> None:
    budget = shm_budget(KB, 2, staged_bytes=5, loaders=3)
    assert budget.traveling_bytes == 3 * 5 * 1000
    assert budget.memory_bytes == memory()
    assert (budget.shm_bytes is not None) == (shm_free() is not None) == os.path.isdir("/dev/shm")
    assert repr(replace(NODE, staged_bytes=30_000 * MB)) == (
        "4 loaders with 3.26 GB of batches, 30.00 GB staged and programs of 0 B:\n"
        "does not fit into /dev/shm of 32.00 GB and memory of 64.00 GB, "
        "where 28.74 GB may be staged."
    )
    assert "no /dev/shm" in repr(replace(NODE, shm_bytes=None))
