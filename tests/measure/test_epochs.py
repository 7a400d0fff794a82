from __future__ import annotations

import multiprocessing
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from course_utils.measure.diagnosis.epochs import end, length, prefetched, untouched

NUMBERS: Any = range(40)


def test_the_prefetched_batches_are_those_of_all_workers() -> None:
    assert prefetched(DataLoader(NUMBERS, num_workers=2, prefetch_factor=4)) == 8
    assert prefetched(DataLoader(NUMBERS, num_workers=2)) == 4
    assert prefetched(DataLoader(NUMBERS)) == 0
    assert prefetched([1, 2]) == 0


def test_a_length_may_be_unknown() -> None:
    assert length(DataLoader(NUMBERS, batch_size=4)) == 10
    assert length(iter([1])) is None


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_ends_early_and_in_order(workers: int) -> None:
    batches = iter(DataLoader(NUMBERS, num_workers=workers))
    next(batches)
    end(batches)
    assert not multiprocessing.active_children()
    with pytest.raises(StopIteration):
        next(batches)


def test_persistent_workers_that_run_already_are_put_aside_and_live_on() -> None:
    loader = DataLoader(NUMBERS, num_workers=1, persistent_workers=True)
    list(loader)
    theirs = loader._iterator
    before = dict(vars(loader))
    with untouched(loader, timeout_s=60):
        assert loader._iterator is None
        assert loader.timeout == 60
        list(loader)
        assert len(multiprocessing.active_children()) == 2
    assert vars(loader) == before
    assert loader._iterator is theirs
    assert len(multiprocessing.active_children()) == 1
    assert len(list(loader)) == 40
    assert theirs is not None
    end(theirs, orderly=False)


def test_random_numbers_go_on_as_if_nothing_had_been() -> None:
    generator = torch.Generator()
    loader = DataLoader(NUMBERS, shuffle=True, generator=generator)

    def draw() -> list[float]:
        return [float(torch.rand(())), float(np.random.rand()), random.random()]

    torch.manual_seed(1)
    np.random.seed(1)
    random.seed(1)
    order = [int(batch) for batch in loader]
    expected = draw()
    torch.manual_seed(1)
    np.random.seed(1)
    random.seed(1)
    generator.manual_seed(torch.Generator().initial_seed())
    with untouched(loader, timeout_s=60):
        list(loader)
        draw()
    assert [int(batch) for batch in loader] == order
    assert draw() == expected
