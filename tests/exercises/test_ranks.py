"""Four real ranks, started by torchrun: each sample once, in new orders, and no hang."""

import json
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from course_utils.teaching.notebook import torchrun
from tests.exercises import rank_training
from tests.exercises.solutions import attempt

RANKS = 4


@pytest.mark.slow
@pytest.mark.many_workers
@pytest.mark.parametrize(
    "workers", [pytest.param(n, marks=[pytest.mark.full] if n != 1 else []) for n in range(4)]
)
def test_all_ranks_together_serve_each_event_once_in_new_orders_and_end_together(
    workers: int, start_method: str, events_folder: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    # the workers of two loaders, which may be spawned
    monkeypatch.setattr(import_module(torchrun.__module__), "_RANK_MB", 2000)
    modules = [attempt(key, tmp_path)[0].__module__ for key in ("11.1", "11.2")]
    arguments = events_folder, tmp_path, workers, start_method, tmp_path, *modules
    run = torchrun(rank_training.__file__, *arguments, ranks=RANKS, seconds=300)
    assert run.returncode == 0, run
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(RANKS)]
    wanted = sorted(set(chain(*(own["stream"][0] for own in ranks))))
    assert len(wanted) == 600
    for way in ("stream", "sampler"):
        for epoch in range(rank_training.EPOCHS):
            assert sorted(chain(*(own[way][epoch] for own in ranks))) == wanted
        for own in ranks:
            assert len({tuple(epoch) for epoch in own[way]}) == rank_training.EPOCHS
            assert len({frozenset(epoch) for epoch in own[way]}) > 1  # samples change ranks
    steps = [own["steps"] for own in ranks]
    assert steps == steps[:1] * RANKS
    assert steps[0][-1] == min(own["batches"][0] for own in ranks)
    assert len({own["batches"][0] for own in ranks}) > 1  # the shards were uneven
