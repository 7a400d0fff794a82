"""What torchrun runs in test_ranks.py: three epochs on a rank, with what the exercises ask for.

python rank_training.py EVENTS OUT WORKERS START_METHOD ANSWERS SAMPLER STEPS
"""

import importlib
import json
import multiprocessing
import sys
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from course_utils.loading.event_shards import EventShards
from course_utils.loading.events import MemmapEvents, pad_collate

EPOCHS, SHARDS = 3, 10  # ten shards on four ranks: some have three, others two


def train(loader: DataLoader[Any], model: DistributedDataParallel) -> list[int]:
    """Train on every batch. A rank that has finished still meets the others."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    served: list[int] = []
    with Join([model]):
        for batch in loader:
            optimizer.zero_grad()
            model(batch["event_id"].float()[:, None]).mean().backward()
            optimizer.step()
            served += batch["event_id"].tolist()
    return served


def main(events: str, out: str, workers: str, start_method: str, *answers: str) -> None:
    folder, sampler_module, steps_module = answers
    sys.path.insert(0, folder)
    make_sampler = importlib.import_module(sampler_module).EverySampleOnce
    in_step = importlib.import_module(steps_module).in_step
    if start_method == "forkserver":
        multiprocessing.set_forkserver_preload(["torch", "keepfed.loaders.stream"])
    distributed.init_process_group("gloo")
    rank, world_size = distributed.get_rank(), distributed.get_world_size()
    model = DistributedDataParallel(torch.nn.Linear(1, 1))

    def load(dataset: Dataset[Any], **how: Any) -> DataLoader[Any]:
        if int(workers):
            how |= {"multiprocessing_context": start_method, "timeout": 120}
            how["persistent_workers"] = True
        return DataLoader(dataset, 16, num_workers=int(workers), collate_fn=pad_collate, **how)

    stream, listed = EventShards(events, shards=SHARDS, buffer=50), MemmapEvents(events)
    sampler = make_sampler(len(listed), rank, world_size)
    streaming, listing = load(stream), load(listed, sampler=sampler)
    found: dict[str, list[Any]] = {"stream": [], "sampler": [], "steps": []}
    for epoch in range(EPOCHS):
        stream.set_epoch(epoch)
        sampler.set_epoch(epoch)
        found["stream"].append(train(streaming, model))
        found["sampler"].append(train(listing, model))
        steps = 0
        for _ in in_step(streaming):
            distributed.all_reduce(torch.zeros(1))
            steps += 1
        found["steps"].append(steps)
    found["batches"] = [stream.count_batches(16, num_workers=int(workers))]
    Path(out, f"{rank}.json").write_text(json.dumps(found), "utf-8")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
