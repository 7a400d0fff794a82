"""The small network that shows the effect of the order of events."""

import pytest

from course_utils.stories.small_training import EPOCHS, held_out_loss
from course_utils.teaching.notebook import data_path


@pytest.mark.slow
def test_sorted_file_makes_losses_oscillate() -> None:
    folder = data_path("events", "S")
    in_order = held_out_loss(folder, lambda n, rng: range(n))
    shuffled, again = (held_out_loss(folder, lambda n, rng: rng.permutation(n)) for _ in range(2))
    epoch = len(shuffled) // EPOCHS
    assert len(in_order) == len(shuffled) == EPOCHS * 50
    assert max(shuffled[epoch:]) < 1 < 2 < max(in_order[-epoch:])
    assert min(in_order[-epoch:]) < 1
    assert shuffled == again
