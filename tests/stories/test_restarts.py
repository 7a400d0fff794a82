"""A training that is really killed several times ends like an uninterrupted one."""

from __future__ import annotations

import os
import random
import signal
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch

from course_utils.stories.small_training import Training
from keepfed.loaders.resume import load_checkpoint, save_checkpoint

if not hasattr(os, "fork"):
    pytest.skip("uses signals and forks of Unix", allow_module_level=True)
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


def train(folder: Path, path: Path, *, workers: int, epochs: int, every: int, tell: int) -> None:
    """Train, save a checkpoint every `every` steps, and write a byte to `tell` after each step."""
    os.setsid()
    training = Training(folder, workers=workers)
    if saved := load_checkpoint(path):
        training.load_state_dict(saved)
    while training.batches.epoch.value < epochs:
        for batch in training.batches.follow(training.loader):
            training.step(batch)
            if len(training.losses) % every == 0:
                save_checkpoint(path, training.state_dict())
            os.write(tell, b".")
    save_checkpoint(path, training.state_dict())


def run_training(
    *arguments: Any, kill_after: int | None = None, alone: bool = False, **how: Any
) -> int:
    """Train in a process that is killed after `kill_after` steps, with its workers or `alone`."""
    reader, tell = os.pipe()
    process = get_context("fork").Process(
        target=train, args=arguments, kwargs={**how, "tell": tell}
    )
    process.start()
    os.close(tell)
    with os.fdopen(reader, "rb", buffering=0) as progress:
        if kill_after is not None:
            for _ in range(kill_after):
                progress.read(1)
            (os.kill if alone else os.killpg)(process.pid or 0, signal.SIGKILL)
        process.join()
    return process.exitcode or 0


def final(path: Path) -> dict[str, Any]:
    state = load_checkpoint(path)
    assert state is not None
    return state


def assert_alike(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Fail unless events, order, losses and network are identical, to the bit."""
    assert found["batches"] == wanted["batches"]
    assert found["events"] == wanted["events"]
    assert found["losses"] == wanted["losses"]
    for name, weights in wanted["network"].items():
        assert torch.equal(found["network"][name], weights)


@pytest.fixture(autouse=True)
def _imported(events_folder: Path) -> None:
    """Import slow modules of torch once, before each run is forked from this process."""
    Training(events_folder, workers=0)


@pytest.mark.slow
def test_training_killed_twice_ends_as_uninterrupted(events_folder: Path, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole.pt", tmp_path / "killed.pt"
    how = {"epochs": 2, "every": 1}
    assert run_training(events_folder, whole, workers=0, **how) == 0
    assert run_training(events_folder, killed, workers=2, kill_after=4, **how) == -signal.SIGKILL
    assert run_training(events_folder, killed, workers=1, kill_after=9, **how) == -signal.SIGKILL
    assert run_training(events_folder, killed, workers=0, **how) == 0
    assert_alike(final(killed), final(whole))


@pytest.mark.full
def test_training_killed_twenty_times_ends_as_uninterrupted(
    events_folder: Path, tmp_path: Path
) -> None:
    """Each run has another number of workers, which are killed with it or become orphans."""
    whole, killed = tmp_path / "whole.pt", tmp_path / "killed.pt"
    draw, how = random.Random(3), {"epochs": 20, "every": 3}
    assert run_training(events_folder, whole, workers=2, **how) == 0
    for life in range(20):
        end = {"kill_after": draw.randint(3, 9), "alone": life % 2 == 1}
        code = run_training(events_folder, killed, workers=life % 4, **end, **how)
        assert code == -signal.SIGKILL
    assert run_training(events_folder, killed, workers=3, **how) == 0
    assert_alike(final(killed), final(whole))
    events = final(whole)["events"]
    epochs = [sorted(events[start : start + 600]) for start in range(0, 12_000, 600)]
    assert epochs == [list(range(600))] * 20
