"""Teach a small transformer what events of the telescope look like, then where they come from."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset

from course_utils.loading.events import Sample, read_sensors
from course_utils.stories.capstone import Job, PulseTransformer
from keepfed.loaders import stream
from keepfed.loaders.workers import SharedEpoch, worker_init
from keepfed.measure.spans import stage

SEED = 1
RATE = 2e-3  # learning rate in the first epoch of a task, after which it decreases
BATCH = 16
WORKERS = 2
CHUNK = 16  # neighboring events, which are read with one request
TOGETHER = 4  # chunks whose events are shuffled as one
LONGEST = 64  # pulses of an event that the model sees

Tokens = dict[str, Any]


class TokenStream(IterableDataset[Tokens]):
    """The events of an epoch as tokens, each of them once, in a new order in every epoch."""

    def __init__(self, job: Job, wanted: Sequence[int]):
        self.events = job.events("npy")
        self.sensors = read_sensors(job.folder, job.storage)
        self.chunks = [wanted[part.start : part.stop] for part in stream.blocks(len(wanted), CHUNK)]
        self.epoch = SharedEpoch()

    def __iter__(self) -> Iterator[Tokens]:
        rng = stream.epoch_rng(SEED, self.epoch.value)
        mine = stream.split(stream.shuffled(self.chunks, rng), stream.WorkerSlot.here())
        for chunks in stream.batched(mine, TOGETHER):
            samples = [sample for chunk in chunks for sample in self.events.__getitems__(chunk)]
            for sample in stream.shuffled(samples, rng):
                yield tokenize(sample, self.sensors)


def tokenize(sample: Sample, sensors: np.ndarray) -> Tokens:
    """Return the brightest pulses of an event in order of time, as the model sees them."""
    with stage("transform"):
        pulses = sample["pulses"].numpy()
        brightest = np.lexsort([-pulses[:, 1], pulses[:, 3]])[:LONGEST]  # with neighbors first
        time, charge, sensor, alone = pulses[np.sort(brightest)].T
        sensor = sensor.astype(np.int64)
        near = neighbors(time, sensors[sensor])
        early = np.median(time[alone == 0]) if (alone == 0).any() else np.median(time)
        seen = [(time - early) / 1000, np.log10(charge), alone, np.log1p(near) / 4]
        features, which = np.zeros((LONGEST, 4), np.float32), np.zeros(LONGEST, np.int64)
        features[: len(time)], which[: len(time)] = np.stack(seen, 1), sensor
        return {
            "event_id": sample["event_id"],
            "features": features,
            "sensor": which,
            "mask": np.arange(LONGEST) < len(time),
            "direction": sample["direction"],
        }


def neighbors(time: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Return for each pulse the number of other pulses within 150 m and 300 ns."""
    far = ((place[:, None] - place) ** 2).sum(2) >= 150**2
    late = abs(time[:, None] - time) >= 300
    return np.asarray((~far & ~late).sum(1) - 1)


def make_loader(data: TokenStream) -> DataLoader[Tokens]:
    """Return a loader for the batches of an epoch."""
    return DataLoader(
        data,
        BATCH,
        num_workers=WORKERS,
        persistent_workers=WORKERS > 0,
        worker_init_fn=worker_init,
    )


def learn(model: PulseTransformer, optimizer: Any, task: str, batch: Any) -> torch.Tensor:
    """Take one step, and return the loss before it."""
    optimizer.zero_grad()
    loss = model.loss(task, batch)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.detach()


def evaluate(model: PulseTransformer, task: str, batch: Any) -> torch.Tensor:
    """Return the loss on a batch without learning from it."""
    with torch.no_grad():
        return model.loss(task, batch)


def train(job: Job) -> None:
    """Train on the task of each epoch of the plan, and evaluate after each epoch."""
    torch.manual_seed(SEED)
    data = TokenStream(job, job.training)
    loader = make_loader(data)
    held_out = DataLoader(TokenStream(job, job.held_out), BATCH)
    model = PulseTransformer(read_sensors(job.folder, job.storage)).to(job.device)
    optimizer = torch.optim.AdamW(model.parameters(), RATE)
    for epoch, task in enumerate(job.plan):
        data.epoch.value = epoch
        part = job.plan[:epoch].count(task) / job.plan.count(task)  # progress of this task
        optimizer.param_groups[0]["lr"] = RATE * (1 - part)
        losses = []
        for batch in job.follow(loader):
            losses.append(job.compute(learn, model, optimizer, task, job.upload(batch)))
        seen = [job.compute(evaluate, model, task, job.upload(batch)) for batch in held_out]
        job.note(task, losses, seen)
