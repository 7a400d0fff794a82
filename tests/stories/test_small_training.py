"""The small network: the order of events matters, and a resumed training is the same training."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from course_utils.stories.small_training import EPOCHS, Training, held_out_loss, orders
from course_utils.teaching.notebook import data_path
from keepfed.loaders.resume import load_checkpoint, save_checkpoint


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


@pytest.mark.slow
def test_held_out_events_are_not_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    light, energy = torch.zeros(800, 2), torch.zeros(800)
    energy[np.random.default_rng(0).permutation(800)[: orders.HELD_OUT]] = 1  # all others are 0
    monkeypatch.setattr(orders, "light_and_energy", lambda folder: (light, energy))
    assert held_out_loss("", lambda n, rng: range(n))[-1] > 0.8


def train(folder: Path, path: Path, workers: int, stop_after: int = 0) -> dict[str, Any]:
    """Resume from the checkpoint in `path` if there is one, and return the last checkpoint."""
    training = Training(folder, workers=workers)
    if saved := load_checkpoint(path):
        training.load_state_dict(saved)
    while training.batches.epoch.value < 2 and not 0 < stop_after <= len(training.losses):
        for batch in training.batches.follow(training.loader):
            training.step(batch)
            save_checkpoint(path, training.state_dict())
            if len(training.losses) == stop_after:
                break
    return load_checkpoint(path) or {}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
def test_training_stopped_twice_ends_as_uninterrupted(events_folder: Path, tmp_path: Path) -> None:
    whole, stopped = tmp_path / "whole.pt", tmp_path / "stopped.pt"
    wanted = train(events_folder, whole, 0)
    for workers, steps in ((2, 4), (1, 13), (0, 0)):
        found = train(events_folder, stopped, workers, steps)
    for name in ("batches", "events", "losses"):
        assert found[name] == wanted[name], name
    for name, weights in wanted["network"].items():
        assert torch.equal(found["network"][name], weights), name
