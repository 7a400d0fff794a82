"""Jobs with several real ranks that are killed and resume with a different number of ranks."""

from __future__ import annotations

import os
import random
from datetime import timedelta
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from torch import distributed
from torch.utils.data import DataLoader, Dataset

from keepfed.loaders.resume import ResumableBatches, load_checkpoint, save_checkpoint

if not hasattr(os, "fork"):
    pytest.skip("forks its ranks", allow_module_level=True)
SAMPLES, TOGETHER, EPOCHS = 60, 12, 3  # 12 samples per step, for any number of ranks


class Numbers(Dataset[int]):
    """Dataset whose sample n is the number n."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> int:
        return index


def work(rank: int, ranks: int, folder: Path, meet: Path, tell: int) -> None:
    """Train as one rank; rank 0 records the samples of all ranks in a step, and saves them."""
    distributed.init_process_group(
        "gloo",
        store=distributed.FileStore(str(meet), ranks),
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=60),
    )
    batches = ResumableBatches(SAMPLES, TOGETHER // ranks, seed=2)
    steps: list[list[int]] = []
    if saved := load_checkpoint(folder / "job.pt"):
        batches.load_state_dict(saved["batches"])
        steps = saved["steps"]
    loader = DataLoader(Numbers(), batch_sampler=batches, num_workers=1)
    while batches.epoch.value < EPOCHS:
        for batch in batches.follow(loader):
            parts: list[Any] = [None] * ranks
            distributed.all_gather_object(parts, batch.tolist())
            steps.append(sorted(chain(*parts)))
            if rank == 0:
                state = {"batches": batches.state_dict(), "steps": steps}
                save_checkpoint(folder / "job.pt", state)
                os.write(tell, b".")


def live(folder: Path, life: int, *, ranks: int, kill_after: int | None = None) -> None:
    """Run a job to its end, or until all its ranks are killed."""
    hear, tell = os.pipe()
    arguments = ranks, folder, folder / f"meet-{life}", tell
    context = get_context("fork")
    job = [context.Process(target=work, args=(rank, *arguments)) for rank in range(ranks)]
    for process in job:
        process.start()
    os.close(tell)
    with os.fdopen(hear, "rb", buffering=0) as heard:
        for _ in range(kill_after or 0):
            heard.read(1)
        for process in job:
            if kill_after:
                process.kill()
            process.join()
            assert kill_after or process.exitcode == 0


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
def test_every_step_has_the_samples_of_an_uninterrupted_job(tmp_path: Path) -> None:
    draw = random.Random(0)
    for life, ranks in enumerate((2, 4, 1, 3)):
        live(tmp_path, life, ranks=ranks, kill_after=draw.randint(1, 4))
    live(tmp_path, 9, ranks=2)
    alone = ResumableBatches(SAMPLES, TOGETHER, seed=2)
    wanted = [sorted(batch) for _ in range(EPOCHS) for batch in alone.follow(alone)]
    assert (load_checkpoint(tmp_path / "job.pt") or {})["steps"] == wanted
