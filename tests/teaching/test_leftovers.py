"""What is cleared away after an interrupt, without a kernel; with one in test_kernel.py."""

from typing import Any

import pytest
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from course_utils.teaching.leftovers import Cleanup, cleanup_workers


def test_cleaning_up_after_nothing_says_so() -> None:
    assert repr(cleanup_workers()) == "Nothing was left over."


def test_what_went_is_counted() -> None:
    one, more = "Cleared away: 1 unfinished loop over a loader, 1 worker process.", Cleanup(2, 4)
    assert repr(Cleanup(1, 1)) == one
    assert repr(more) == "Cleared away: 2 unfinished loops over a loader, 4 worker processes."


@pytest.mark.parametrize(
    "state", [{}, {"_shutdown": False}, {"_shutdown": False, "_workers": []}], ids=str
)
def test_a_loop_that_was_interrupted_while_it_began_is_no_obstacle(state: dict[str, Any]) -> None:
    half_made: Any = _MultiProcessingDataLoaderIter.__new__(_MultiProcessingDataLoaderIter)
    vars(half_made).update(state)
    assert cleanup_workers().processes == 0
    half_made._shutdown = True  # for torch, which shuts it down again as it goes
