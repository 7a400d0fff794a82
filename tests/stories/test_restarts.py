"""A training that is really killed several times ends like an uninterrupted one."""

from __future__ import annotations

import os
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


def train(folder: Path, path: Path, workers: int, tell: int) -> None:
    """Train two epochs, save a checkpoint after each step, and write a byte to `tell`."""
    os.setsid()
    training = Training(folder, workers=workers)
    if saved := load_checkpoint(path):
        training.load_state_dict(saved)
    while training.batches.epoch.value < 2:
        for batch in training.batches.follow(training.loader):
            training.step(batch)
            save_checkpoint(path, training.state_dict())
            os.write(tell, b".")
    save_checkpoint(path, training.state_dict())


def run_training(*arguments: Any, kill_after: int = 0, alone: bool = False) -> int:
    """Train in a process that is killed after `kill_after` steps, with its workers or `alone`."""
    reader, tell = os.pipe()
    process = get_context("fork").Process(target=train, args=(*arguments, tell))
    process.start()
    os.close(tell)
    with os.fdopen(reader, "rb", buffering=0) as progress:
        for _ in range(kill_after):
            progress.read(1)
        if kill_after:
            (os.kill if alone else os.killpg)(process.pid or 0, signal.SIGKILL)
        process.join()
    return process.exitcode or 0


@pytest.mark.slow
def test_training_killed_twice_ends_as_uninterrupted(events_folder: Path, tmp_path: Path) -> None:
    Training(events_folder, workers=0)  # imports slow modules once, before the forks
    whole, killed = tmp_path / "whole.pt", tmp_path / "killed.pt"
    assert run_training(events_folder, whole, 0) == 0
    for workers, steps, alone in ((2, 4, False), (1, 9, True)):
        code = run_training(events_folder, killed, workers, kill_after=steps, alone=alone)
        assert code == -signal.SIGKILL
    assert run_training(events_folder, killed, 0) == 0
    found, wanted = load_checkpoint(killed), load_checkpoint(whole)
    assert found
    assert wanted
    for name in ("batches", "events", "losses"):
        assert found[name] == wanted[name], name
    for name, weights in wanted["network"].items():
        assert torch.equal(found["network"][name], weights), name
