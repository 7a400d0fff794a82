"""Right trainings of many kinds that serve samples in unusual ways, and wrong ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import cycle, islice
from typing import Any

import numpy as np
import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    Sampler,
    Subset,
    get_worker_info,
)

from tests.auditing.loaders import Mixed, N, OwnGenerator, Repeats, Stream, Table, loader

Batches = Iterable[Any]


class Model:
    """A model with an optimizer, whose step is what tells a training from an evaluation."""

    def __init__(self) -> None:
        self.layer = torch.nn.Linear(8, 1)
        self.optimizer = torch.optim.SGD(self.layer.parameters(), 0.01)

    def train(self, batches: Batches, epochs: int = 2, after: Callable[[], Any] = list) -> None:
        for _ in range(epochs):
            for batch in batches:
                self.step(batch)
            after()

    def step(self, batch: Any) -> None:
        self.optimizer.zero_grad()
        self.layer(batch[0].float()).mean().backward()
        self.optimizer.step()

    def evaluate(self, batches: Batches) -> None:
        for batch in batches:
            with torch.no_grad():  # inside the loop, where the loader does not see it
                self.layer(batch[0])


class Indices(Sampler[Any]):
    """A sampler from a function that returns the indices of an epoch."""

    def __init__(self, draw: Callable[[], Iterable[Any]], length: int | None = None):
        self.draw, self.length = draw, length

    def __iter__(self) -> Iterator[Any]:
        return iter(self.draw())


class Sized(Indices):
    def __len__(self) -> int:
        return self.length or N


class Again(Sampler[list[int]]):
    """Batches of a batch sampler, again and again without an end."""

    def __init__(self, batches: Any):
        self.batches = batches

    def __iter__(self) -> Iterator[list[int]]:
        while True:
            yield from self.batches


class OneIterator(DataLoader[Any]):
    """Creates one iterator for all epochs, as loaders of timm and ultralytics do.

    `lazy` tells whether it is created with the first batch.
    """

    def __init__(self, dataset: Any, *, lazy: bool = False, **options: Any):
        super().__init__(dataset, 16, **options)
        object.__setattr__(self, "batch_sampler", Again(self.batch_sampler))
        self.iterator: Any = None if lazy else super().__iter__()

    def __len__(self) -> int:
        return len(self.batch_sampler.batches)  # type: ignore[union-attr]

    def __iter__(self) -> Any:
        if self.iterator is None:
            self.iterator = super().__iter__()
        for _ in range(len(self)):
            yield next(self.iterator)


class Resampled(IterableDataset[Any]):
    """Every worker draws from all data at random, without an end."""

    def __iter__(self) -> Iterator[Any]:
        table = Mixed(64)
        while True:
            yield table[int(torch.randint(64, ()))]


class ShuffledAlike(Stream):
    """All workers shuffle by the same seed, and then each takes its share."""

    def __init__(self) -> None:
        super().__init__()
        self.rng = random.Random(1)

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        order = self.rng.sample(range(N), N)
        table = Mixed()
        yield from (table[index] for index in order[info.id if info else 0 :: 2])


class Missing(Mixed):
    """NaN marks missing values, and infinite numbers a mask."""

    def __getitem__(self, index: int) -> Any:
        numbers, label = super().__getitem__(index)
        values = numbers.masked_fill(numbers * 1000 % 7 < 2, float("nan"))
        return numbers, values, torch.full((4,), -torch.inf if index == 9 else 0), label


class OneSensorFails(Mixed):
    """NaN in one sample."""

    def __getitem__(self, index: int) -> Any:
        numbers, label = super().__getitem__(index)
        return (numbers * float("nan") if index == 77 else numbers), label


class SensorsFail(Mixed):
    """NaN in every sample, from some sample on."""

    calls = 0

    def __getitem__(self, index: int) -> Any:
        self.calls += 1
        numbers, label = super().__getitem__(index)
        return numbers * (float("nan") if self.calls > 200 else 1), label


class TwoKinds(Dataset[Any]):
    """Batches of one kind or the other."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> Any:
        pair = (torch.zeros(8), index), (torch.zeros(8, dtype=torch.float64), index)
        return pair[index // 160]


def _endless(generator: torch.Generator) -> Iterator[int]:
    while True:
        yield from torch.randperm(N, generator=generator).tolist()


def class_balance() -> None:
    def draw() -> Iterator[list[int]]:
        for _ in range(30):
            classes = random.sample(range(20), 4)  # class 19 is rare
            yield [random.choice(range(c, N, 20)[: 20 - c]) for c in classes for _ in range(4)]

    Model().train(DataLoader(Mixed(), batch_sampler=Sized(draw, 30)))


def folds_by_subset() -> None:
    data, parts = Mixed(), np.array_split(np.random.permutation(N), 4)
    for k in range(3):
        rest = np.concatenate(parts[:k] + parts[k + 1 :])
        model, other = Model(), loader(Subset(data, parts[k]))  # type: ignore[arg-type]
        training = loader(Subset(data, rest), shuffle=True)  # type: ignore[arg-type]
        model.train(training, after=partial(model.evaluate, other))


def accuracy_on_the_training_set() -> None:
    data, model = Mixed(), Model()
    other = DataLoader(data, 64)
    model.train(loader(data, shuffle=True), after=partial(model.evaluate, other))


def endless_order_without_a_length() -> None:
    order = Indices(lambda: _endless(torch.Generator().manual_seed(0)))
    Model().train(islice(loader(Mixed(), sampler=order), 70), epochs=1)


def one_iterator_for_all_epochs() -> None:
    model, other = Model(), OneIterator(Mixed(64), lazy=True)
    for workers in (0, 1):
        training = OneIterator(Mixed(), shuffle=True, num_workers=workers)
        model.train(training, 3, after=partial(model.evaluate, other))


def one_sample_left_out() -> None:
    Model().train(loader(Mixed(), sampler=Sized(lambda: torch.randperm(N)[1:].tolist())))


def fixed_order() -> None:
    rows = torch.arange(N).reshape(16, N // 16).T.flatten().tolist()
    Model().train(loader(Mixed(), sampler=rows))


def repeats_on_purpose() -> None:
    few, many = loader(Mixed(64), shuffle=True), loader(Mixed(), shuffle=True)
    Model().train((a for a, _ in zip(cycle(few), many, strict=False)), epochs=1)
    Model().train(loader(Mixed(), sampler=Repeats()))


def token_windows() -> None:
    model = Model()
    model.train(islice(DataLoader(Resampled(), 16, num_workers=2), 60), epochs=1)
    starts = Sized(lambda: torch.randint(N, (N,)).tolist())
    model.train(loader(Table(), sampler=starts))


def curriculum() -> None:
    data, model = Mixed(), Model()
    for count in (80, 160, 240):
        model.train(loader(Subset(data, range(count)), shuffle=True), epochs=1)
    length = iter((5, 10))
    growing = Sized(lambda: torch.randperm(N)[: 16 * next(length)].tolist())
    model.train(loader(data, sampler=growing))


def validation_in_an_epoch() -> None:
    model, other = Model(), DataLoader(Table(160), 16)  # sorted by class
    for _ in range(2):
        for number, batch in enumerate(loader(Mixed(), shuffle=True)):
            model.step(batch)
            if number % 6 == 0:
                model.evaluate(other)


def two_loaders_at_one_place() -> None:
    data = LazyNoise()
    Model().train(loader(data, shuffle=True, num_workers=1, persistent_workers=True))
    Model().train(loader(data, shuffle=True), epochs=1)


def shared_by_ranks() -> None:
    model, other = Model(), loader(Mixed(64), sampler=DistributedSampler(Mixed(64), 2, 0))
    order: Any = DistributedSampler(Mixed(), 2, 0)
    for epoch in range(2):
        order.set_epoch(epoch)
        model.train(loader(Mixed(), sampler=order), epochs=1)
        model.evaluate(other)


def fixed_noise_in_validation() -> None:
    model, other = Model(), loader(OwnGenerator(), num_workers=2)
    model.train(loader(Mixed(), shuffle=True), after=partial(model.evaluate, other))


def shards_shuffled_alike() -> None:
    Model().train(loader(ShuffledAlike(), num_workers=2))


def missing_values() -> None:
    Model().train(loader(Missing(), shuffle=True))


def two_kinds_of_batches() -> None:
    Model().train(loader(TwoKinds(), sampler=range(N)), epochs=1)


class LazyNoise(Mixed):
    """Noise from the generators of the process."""

    def __getitem__(self, index: int) -> Any:
        numbers, label = super().__getitem__(index)
        return numbers + torch.randn(8) * np.random.rand() * random.random(), label


# right trainings, with the kinds of facts that the audit reports
RIGHT: dict[Callable[[], None], set[str]] = {
    class_balance: {"not each once"},
    folds_by_subset: {"shared samples"},
    accuracy_on_the_training_set: {"shared samples"},
    endless_order_without_a_length: {"not each once"},
    one_iterator_for_all_epochs: set(),
    one_sample_left_out: {"not each once"},
    fixed_order: {"same order", "not mixed"},
    repeats_on_purpose: {"repeated epoch", "not each once"},
    token_windows: {"workers draw from all", "not each once"},
    curriculum: {"not each once"},
    validation_in_an_epoch: set(),
    two_loaders_at_one_place: set(),
    shared_by_ranks: set(),
    fixed_noise_in_validation: set(),
    shards_shuffled_alike: set(),
    missing_values: {"not finite"},
    two_kinds_of_batches: {"changing dtype"},
}


def never_set_epoch() -> None:
    Model().train(loader(Mixed(), sampler=DistributedSampler(Mixed(), 2, 0)))


def epoch_that_never_arrives() -> None:
    data, model = Mixed(), Model()
    batches = loader(data, shuffle=True, num_workers=1, persistent_workers=True)
    for epoch in range(2):
        data.epoch = epoch
        model.train(batches, epochs=1)


def endless_stream_of_all() -> None:
    class All(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return cycle([*map(Mixed().__getitem__, range(64))])

    Model().train(islice(loader(All(), num_workers=2), 30), epochs=1)


# wrong trainings, with the fault that the audit must report and a part of its sentence
WRONG: dict[Callable[[], None], tuple[str, str]] = {
    lambda: Model().train(loader(Stream(share=False), num_workers=2)): (
        "workers overlap",
        "workers 0 and 1 serve 320 samples in common",
    ),
    endless_stream_of_all: ("workers overlap", "serve 64 samples in common"),
    never_set_epoch: ("no set_epoch", "is at epoch 0 in both"),
    epoch_that_never_arrives: ("stale epoch", "is at epoch 1, but its copy in worker 0 is at"),
    lambda: Model().train(loader(OwnGenerator(), shuffle=True, num_workers=2)): (
        "same random numbers",
        "draws the same numbers in workers 0 and 1",
    ),
    lambda: Model().train(loader(OwnGenerator(), shuffle=True, num_workers=1)): (
        "same random numbers",
        "draws the same numbers in epochs 0 and 1",
    ),
    lambda: Model().train(loader(OneSensorFails(), shuffle=True)): (
        "damaged",
        "8 of 128 numbers of array 0 are NaN, and in 2 of 40 batches some are",
    ),
    lambda: Model().train(loader(SensorsFail(), shuffle=True)): ("damaged", "epoch 0: in batch 12"),
}
