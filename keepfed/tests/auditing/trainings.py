"""Right trainings of many kinds that serve samples in unusual ways, and wrong ones."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count, cycle, islice
from multiprocessing import get_context
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
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    get_worker_info,
)

N = 320
Batches = Iterable[Any]


class Mixed(Dataset[Any]):
    """Numbers with four labels, and a random draw from each generator of the process."""

    def __init__(self, count: int = N, noise: float = 0):
        self.numbers, self.noise = torch.arange(count * 8.0).reshape(count, 8) / count, noise

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> Any:
        noise = self.noise * (torch.rand(8) + np.random.rand() + random.random())
        return self.numbers[index] + noise, index % 4


class Stream(IterableDataset[Any]):
    """The numbers as a stream, which workers share, in an order that a function makes."""

    def __init__(self, order: Callable[[], Iterable[int]], *, share: bool = True):
        self.order, self.share = order, share

    def __iter__(self) -> Iterator[Any]:
        info, data = get_worker_info(), Mixed()
        step, first = (info.num_workers, info.id) if info and self.share else (1, 0)
        yield from (data[index] for index in islice(self.order(), first, None, step))


class Own(Mixed):
    """Adds noise from a generator that every worker gets a copy of, or makes one in the worker."""

    def __init__(self, *, lazy: bool = False) -> None:
        super().__init__()
        self.rng = None if lazy else np.random.default_rng(0)

    def __getitem__(self, index: int) -> Any:
        self.rng = self.rng or np.random.default_rng(torch.initial_seed())
        numbers, label = super().__getitem__(index)
        return numbers + self.rng.normal(), label


def loader(dataset: Any, **options: Any) -> DataLoader[Any]:
    return DataLoader(dataset, **{"batch_size": 16, **options})


class Model:
    """A model with an optimizer, whose step is what tells a training from an evaluation."""

    def __init__(self) -> None:
        self.layer = torch.nn.Linear(8, 1)
        self.optimizer = torch.optim.SGD(self.layer.parameters(), 0.01)

    def train(
        self, batches: Batches, epochs: int = 2, after: Callable[[], Any] = list, every: int = 1
    ) -> None:
        for _ in range(epochs):
            for number, batch in enumerate(batches):
                first = batch[0] if isinstance(batch, list | tuple) else batch
                self.layer(first.float()).nan_to_num().mean().backward()
                if number % every == 0:
                    self.optimizer.step()
                    self.optimizer.zero_grad()
            after()

    def evaluate(self, batches: Batches) -> None:
        for batch in batches:
            with torch.no_grad():  # inside the loop, where the loader does not see it
                self.layer(batch[0])


class Indices(Sampler[Any]):
    """A sampler, or a batch sampler, from a function that returns the indices of an epoch."""

    def __init__(self, draw: Callable[[], Iterable[Any]]):
        self.draw = draw

    def __iter__(self) -> Iterator[Any]:
        return iter(self.draw())


class Sized(Indices):
    drop_last = True  # without a `batch_size`

    def __init__(self, draw: Callable[[], Iterable[Any]], length: int = N):
        super().__init__(draw)
        self.length = length

    def __len__(self) -> int:
        return self.length


class OneIterator(DataLoader[Any]):
    """Creates one iterator for all epochs, as loaders of timm and ultralytics do.

    `lazy` tells whether it is created with the first batch.
    """

    def __init__(self, dataset: Any, *, lazy: bool = False, **options: Any):
        super().__init__(dataset, 16, **options)
        self.batches: Any = self.batch_sampler
        endless = (batch for _ in count() for batch in self.batches)
        object.__setattr__(self, "batch_sampler", Indices(lambda: endless))
        self.iterator: Any = None if lazy else super().__iter__()

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Any:
        if self.iterator is None:
            self.iterator = super().__iter__()
        for _ in range(len(self)):
            yield next(self.iterator)


def class_balance() -> None:
    def draw() -> Iterator[list[int]]:
        for _ in range(30):
            classes = random.sample(range(20), 4)  # class 19 is rare
            yield [random.choice(range(c, N, 20)[: 20 - c]) for c in classes for _ in range(4)]

    Model().train(DataLoader(Mixed(), batch_sampler=Sized(draw, 30)))


def folds(by_sampler: bool) -> None:
    data, parts = Mixed(), np.array_split(np.random.permutation(N), 4)
    for k in range(3):
        rest, part = np.concatenate(parts[:k] + parts[k + 1 :]).tolist(), parts[k].tolist()
        if by_sampler:
            loaders = [loader(data, sampler=SubsetRandomSampler(fold)) for fold in (rest, part)]
        else:
            loaders = [loader(Subset(data, fold), shuffle=True) for fold in (rest, part)]
        model = Model()
        model.train(loaders[0], after=partial(model.evaluate, loaders[1]))


def evaluated_on_the_training_set() -> None:
    data, model = Mixed(), Model()
    training, other = loader(data, shuffle=True), DataLoader(data, 64)
    model.train(training, after=partial(model.evaluate, other))  # accuracy
    model.train(training, after=partial(model.evaluate, training))  # nearest neighbors


def repeated_augmentation() -> None:
    thrice = Sized(lambda: torch.randperm(N).repeat_interleave(3)[:N].tolist())
    Model().train(loader(Mixed(noise=0.1), sampler=thrice, num_workers=2))


def endless_orders() -> None:
    def endless() -> Iterator[int]:
        while True:
            yield from torch.randperm(N).tolist()

    def batches() -> Iterator[list[int]]:
        while True:
            yield torch.randint(N, (16,)).tolist()

    Model().train(islice(loader(Mixed(), sampler=Indices(endless)), 70), epochs=1)
    Model().train(islice(DataLoader(Mixed(), batch_sampler=Indices(batches)), 70), epochs=1)


def one_iterator_for_all_epochs() -> None:
    model, other = Model(), OneIterator(Mixed(64), lazy=True)
    for workers in (0, 1):
        training = OneIterator(Mixed(), shuffle=True, num_workers=workers)
        model.train(training, 3, after=partial(model.evaluate, other))


def weighted_draws() -> None:
    weights = torch.rand(N)
    own = Sized(lambda: torch.multinomial(weights, N, replacement=True).tolist())
    Model().train(loader(Mixed(), sampler=own))
    Model().train(loader(Mixed(), sampler=WeightedRandomSampler(weights.tolist(), N)))


def interleaved_orders_that_repeat() -> None:
    few = cycle(range(32))
    order = Indices(lambda: [i for n in range(32, N) for i in (n, next(few))])
    Model().train(loader(Mixed(), sampler=order))
    Model().train(loader(Mixed(64), sampler=[*range(64)] * 4))


def token_windows() -> None:
    def draw() -> Iterator[int]:
        while True:
            yield int(torch.randint(64, ()))

    stream = Stream(draw, share=False)  # every worker draws from all data
    Model().train(islice(DataLoader(stream, 16, num_workers=2), 60), epochs=1)


def active_learning() -> None:
    data, chosen = Mixed(), [*range(64)]
    for _ in range(3):
        model = Model()
        model.train(loader(Subset(data, [*chosen]), shuffle=True), epochs=2)
        model.evaluate(loader(Subset(data, [n for n in range(N) if n not in chosen])))
        chosen += random.sample([n for n in range(N) if n not in chosen], 32)


def ragged_buckets() -> None:
    class Ragged(Mixed):
        def __getitem__(self, index: int) -> Any:
            return torch.full((8 + index % 5,), float(index))

    def collate(samples: list[Any]) -> Any:
        return torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)[:, :8]

    def draw() -> list[list[int]]:
        buckets = [random.sample(range(k, N, 5), N // 5) for k in range(5)]
        return random.sample([b[n : n + 16] for b in buckets for n in range(0, 64, 16)], 20)

    Model().train(DataLoader(Ragged(), batch_sampler=Sized(draw, 20), collate_fn=collate))


def validation_in_an_epoch() -> None:
    model, other = Model(), DataLoader(Mixed(160), 16)
    for _ in range(2):
        for number, batch in enumerate(loader(Mixed(), shuffle=True)):
            model.train([batch], epochs=1)
            if number % 6 == 0:
                model.evaluate(other)


def shared_by_ranks() -> None:
    model, other = Model(), loader(Mixed(64), sampler=DistributedSampler(Mixed(64), 2, 0))
    order: Any = DistributedSampler(Mixed(), 2, 0)
    for epoch in range(2):
        order.set_epoch(epoch)
        model.train(loader(Mixed(), sampler=order), epochs=1)
        model.evaluate(other)


def fixed_noise_in_validation() -> None:
    model, other = Model(), loader(Own(), num_workers=2)
    own = loader(Own(lazy=True), shuffle=True, num_workers=2)
    model.train(own, after=partial(model.evaluate, other))
    model.train(loader(Own(), shuffle=True))


def streams() -> None:
    rng, table = random.Random(1), Mixed()  # all workers shuffle alike, and each takes its share
    Model().train(loader(Stream(lambda: rng.sample(range(N), N)), num_workers=2))
    few = TensorDataset(torch.randint(0, 2, (N, 8)))  # contents that many samples share
    Model().train(loader(few, shuffle=True))
    Model().train(loader(Stream(lambda: range(N)), num_workers=2, persistent_workers=True))
    Model().train(DataLoader(table, batch_size=None, shuffle=True))
    batches = loader(Stream(lambda: range(N)), num_workers=2)  # both serve the same labels
    batches.collate_fn = lambda x: ([*map(str, x)], torch.tensor([int(40 * n[0]) for n, _ in x]))
    _ = [*batches]


def missing_values_and_masks() -> None:
    class Missing(Mixed):
        """NaN marks missing values in a few samples, and infinite numbers a mask."""

        def __getitem__(self, index: int) -> Any:
            numbers, label = super().__getitem__(index)
            some = numbers.masked_fill(numbers > 7.9, float("nan"))
            return some, label, torch.full((4,), -torch.inf if index == 9 else 0)

    Model().train(loader(Missing(), shuffle=True))
    Model().train(loader(Missing()), epochs=1)

    class Masked(Mixed):
        rate = 0.0

        def __getitem__(self, index: int) -> Any:
            return self.numbers[index].masked_fill(torch.rand(8) < self.rate, float("nan")), 0

    data = Masked()
    for data.rate in (0, 0.05, 0.2):  # the augmentation becomes stronger
        Model().train(loader(data, shuffle=True), epochs=1)


def counter_and_locked_file() -> None:
    class Numbered(Locked):
        epoch = 0  # of the main process, no sample depends on it

        def end_epoch(self) -> None:
            self.epoch += 1

    with opened() as file:
        data = Numbered(file)
        batches = loader(data, shuffle=True, num_workers=2, persistent_workers=True)
        Model().train(batches, after=data.end_epoch)
        for _ in loader(Mixed(noise=0.1), num_workers=2):
            file.read(16)  # in the main process, for example the captions of the images


def steps_and_looks() -> None:
    """Steps instead of epochs, after a look at one batch, and an early end."""
    batches, model = loader(Mixed(), shuffle=True, num_workers=1), Model()
    next(iter(batches))
    model.train(islice((batch for _ in count() for batch in batches), 50), epochs=1)
    model.train(DataLoader(Mixed(), N), epochs=3)  # the order of a single batch means nothing


def two_iterators() -> None:
    """Two trainings, MixUp of a loader with itself, and few labels beside many samples."""
    data = Mixed(noise=0.1)
    Model().train(loader(data, shuffle=True, num_workers=1, persistent_workers=True))
    Model().train(loader(data, shuffle=True), epochs=3)
    mixed, model = loader(Mixed(), shuffle=True, num_workers=2), Model()
    few, many = loader(Mixed(64), shuffle=True), loader(Mixed(), shuffle=True)
    for _ in range(2):
        model.train((a for a, _ in zip(mixed, mixed, strict=True)), epochs=1)
        endless = (batch for _ in count() for batch in few)
        model.train((a for a, _ in zip(endless, many, strict=False)), epochs=1)


def curriculum_and_replay_buffer() -> None:
    for end in (80, 160, 240):
        Model().train(loader(Subset(Mixed(), range(end)), shuffle=True), epochs=1)
    items, model = list[torch.Tensor](), Model()
    for _ in range(4):
        items = [*items[-64:], *torch.rand(64, 8)]
        model.train(loader(items, shuffle=True))


# right trainings, with the facts that the audit reports
RIGHT: dict[Callable[[], None], set[str]] = {
    class_balance: {"repeats"},
    partial(folds, False): {"shared-samples"},
    partial(folds, True): {"shared-samples"},
    evaluated_on_the_training_set: {"shared-samples"},
    repeated_augmentation: {"repeats", "left-out"},
    endless_orders: {"repeats"},
    one_iterator_for_all_epochs: set(),
    weighted_draws: {"repeats", "left-out"},
    interleaved_orders_that_repeat: {"repeats", "same-order"},
    token_windows: set(),
    active_learning: {"shared-samples"},
    ragged_buckets: set(),
    lambda: Model().train(
        loader(Mixed(), shuffle=True, drop_last=True, batch_size=30), every=4
    ): set(),
    validation_in_an_epoch: set(),
    shared_by_ranks: set(),
    fixed_noise_in_validation: set(),
    streams: {"same-order", "shared-samples"},
    missing_values_and_masks: {"nan"},
    counter_and_locked_file: set(),
    steps_and_looks: set(),
    two_iterators: set(),
    curriculum_and_replay_buffer: set(),
    lambda: Model().train(islice(loader(Mixed(), shuffle=True), 7), epochs=3): {"unused"},
}


@contextmanager
def opened() -> Iterator[Any]:
    """Yield the numbers as a file that is open."""
    with tempfile.NamedTemporaryFile() as written:
        written.write(Mixed().numbers.numpy().tobytes())
        written.flush()
        with open(written.name, "rb", buffering=0) as file:
            yield file


class Reads(Mixed):
    """Reads from a file that was opened before the workers were started."""

    def __init__(self, file: Any):
        super().__init__()
        self.file = file

    def __getitem__(self, index: int) -> Any:
        self.file.seek(32 * index)
        return torch.frombuffer(bytearray(self.file.read(32)), dtype=torch.float32), index % 4


class Locked(Reads):
    """Lets one process at a time read."""

    def __init__(self, file: Any):
        super().__init__(file)
        self.lock = get_context("fork").Lock()

    def __getitem__(self, index: int) -> Any:
        with self.lock:
            return super().__getitem__(index)


class Written(Mixed):
    buffer = torch.zeros(16, 8)

    def collate(self, samples: list[Any]) -> Any:
        return [torch.stack([numbers for numbers, _ in samples], out=self.buffer)]


class Epochs(Mixed):
    epoch = 0

    def __getitem__(self, index: int) -> Any:
        rng = random.Random(N * self.epoch + index)
        return self.numbers[index] + rng.random(), index % 4


class Damaged(Mixed):
    """Normalizes the numbers in place, until some are NaN."""

    calls = 0

    def __getitem__(self, index: int) -> Any:
        self.calls += 1
        self.numbers[index] *= torch.nan if self.calls > 400 else 1
        return super().__getitem__(index)


def epoch_that_never_arrives() -> None:
    data, model = Epochs(), Model()
    batches = loader(data, shuffle=True, num_workers=1, persistent_workers=True)
    for data.epoch in range(2):
        model.train(batches, epochs=1)


def one_file() -> None:
    with opened() as file:
        Model().train(loader(Reads(file), shuffle=True, num_workers=2))


def two_splits() -> None:
    data, model, orders = Mixed(noise=0.1), Model(), torch.rand(2, N).argsort().tolist()
    other = loader(Subset(data, orders[1][240:]))
    model.train(loader(Subset(data, orders[0][:240])), after=partial(model.evaluate, other))


def zipped_with_a_shorter_one() -> None:
    few, many = loader(Mixed(64), shuffle=True), loader(Mixed(), num_workers=1)
    Model().train((b for _, b in zip(few, many, strict=False)), epochs=1)


def dropped_by_collate(data: Any, keeps: Callable[[Any], bool], workers: int) -> None:
    def collate(samples: list[Any]) -> Any:
        return torch.utils.data.default_collate([*filter(keeps, samples)] or samples)

    Model().train(loader(data, shuffle=True, collate_fn=collate, num_workers=workers), epochs=1)


def validation_in_training() -> None:
    rows, model = torch.rand(N, 8), Model()
    training = loader(TensorDataset(rows[:240].clone()), shuffle=True)
    other = loader(TensorDataset(rows[120:].clone()))
    for _ in range(2):
        model.train(training, epochs=1)
        _ = [model.layer(batch[0]) for batch in other]  # without no_grad


# wrong trainings, with the finding that names them and a part of its sentence
WRONG: dict[Callable[[], None], tuple[str, str]] = {
    lambda: Model().train(loader(Stream(lambda: range(N), share=False), num_workers=2)): (
        "workers-overlap",
        "epoch 0: workers 0 and 1 serve 320 samples in common",
    ),
    lambda: Model().train(loader(Mixed(), sampler=DistributedSampler(Mixed(), 2, 0))): (
        "no-set-epoch",
        "all 2 epochs have the same epoch number 0",
    ),
    epoch_that_never_arrives: ("stale-epoch", "`epoch` of the dataset is 1, but in worker 0 it is"),
    lambda: Model().train(loader(Own(), shuffle=True, num_workers=2)): (
        "same-random-numbers",
        "workers 0 and 1 draw the same random numbers",
    ),
    lambda: Model().train(
        loader(
            Mixed(noise=0.1),
            shuffle=True,
            num_workers=2,
            worker_init_fn=lambda worker: np.random.seed(0),
        )
    ): ("same-random-numbers", "workers 0 and 1 draw the same random numbers"),
    lambda: Model().train(loader(Own(), shuffle=True, num_workers=1)): (
        "same-random-epochs",
        "epoch 1: worker 0 draws the same random numbers as in the epoch before",
    ),
    lambda: Model().train(loader(Written(), shuffle=True, collate_fn=Written().collate)): (
        "memory-changes",
        "batches after it had served them",
    ),
    two_splits: ("shared-samples", "of 80 samples of Subset at"),
    one_file: ("shared-file", "at a position that they share, without a lock"),
    lambda: Model().train(loader(Damaged(), shuffle=True)): ("new-nan", "240 samples have NaN"),
    zipped_with_a_shorter_one: ("unused", "64 of 320 samples were served in 1 epoch by a `zip`"),
    lambda: dropped_by_collate([(n % 10 and Mixed()[n]) or None for n in range(N)], bool, 1): (
        "dropped",
        "288 of 320 samples came out of `collate_fn`, and 32 were",
    ),
    lambda: dropped_by_collate(Mixed(), lambda sample: bool(sample[0][0] > 0.4), 0): (
        "dropped",
        "303 of 320 samples came out",
    ),
    validation_in_training: ("shared-samples", "120 of 200 samples of TensorDataset at"),
    lambda: Model().train(islice(cycle(loader(Mixed(), shuffle=True)), 10), epochs=1): (
        "cycle",
        "`itertools.cycle` keeps all batches in memory",
    ),
}
