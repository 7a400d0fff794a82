"""Answers to the exercise on caches of notebook 07, right and wrong, importable by workers."""

from collections import OrderedDict
from typing import Any

import torch
from torch.utils.data import Dataset


class Cached(Dataset[torch.Tensor]):
    """Right, with a seam for each slip."""

    def __init__(self, dataset: Any, budget: int):
        self.dataset = dataset
        example = dataset[0]
        self.slots = self.room(len(dataset), budget, example)
        self.kept = torch.zeros(self.slots, *example.shape, dtype=example.dtype)
        self.here = torch.zeros(self.slots, dtype=torch.bool)
        self.share()

    def room(self, length: int, budget: int, example: torch.Tensor) -> int:
        return min(length, budget // example.nbytes)

    def share(self) -> None:
        self.kept.share_memory_()
        self.here.share_memory_()

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> torch.Tensor:
        if index >= self.slots:
            return self.dataset[index]
        if not self.here[index]:
            self.kept[index] = self.dataset[index]
            self.here[index] = True
        return self.hand_out(self.kept[index])

    def hand_out(self, kept: torch.Tensor) -> torch.Tensor:
        return kept.clone()


class FilledAtOnce(Cached):
    """Right too: reads what fits before the first epoch."""

    def __init__(self, dataset: Any, budget: int):
        super().__init__(dataset, budget)
        for index in range(1, self.slots):
            self[index]


class NothingKept(Cached):
    def __getitem__(self, index: int) -> torch.Tensor:
        return self.dataset[index]


class ReadsTwice(Cached):
    def __getitem__(self, index: int) -> torch.Tensor:
        if index < self.slots and not self.here[index]:
            self.kept[index] = self.dataset[index]
            self.here[index] = True
            return self.dataset[index]
        return super().__getitem__(index)


class InADict(Cached):
    """Keeps what comes first, in the process that read it."""

    def __init__(self, dataset: Any, budget: int):
        super().__init__(dataset, budget)
        self.found: dict[int, torch.Tensor] = {}

    def __getitem__(self, index: int) -> torch.Tensor:
        if index in self.found:
            return self.found[index].clone()
        sample = self.dataset[index]
        if len(self.found) < self.slots:
            self.found[index] = sample
        return sample.clone()


class LeastRecentlyUsed(Cached):
    def __init__(self, dataset: Any, budget: int):
        super().__init__(dataset, budget)
        self.found: OrderedDict[int, torch.Tensor] = OrderedDict()

    def __getitem__(self, index: int) -> torch.Tensor:
        if index not in self.found:
            self.found[index] = self.dataset[index]
        self.found.move_to_end(index)
        sample = self.found[index].clone()
        while len(self.found) > self.slots:
            self.found.popitem(last=False)
        return sample


class IgnoresTheBudget(Cached):
    def room(self, length: int, budget: int, example: torch.Tensor) -> int:
        return length


class OneAtLeast(Cached):
    def room(self, length: int, budget: int, example: torch.Tensor) -> int:
        return max(1, super().room(length, budget, example))


class HalfTheRoom(Cached):
    """Counts numbers of two bytes as if they had four."""

    def room(self, length: int, budget: int, example: torch.Tensor) -> int:
        return min(length, budget // (4 * example.numel()))


class GivesItselfAway(Cached):
    def hand_out(self, kept: torch.Tensor) -> torch.Tensor:
        return kept


class NextFreePlace(Cached):
    """Workers agree on nothing: each counts the places for itself."""

    def __init__(self, dataset: Any, budget: int):
        super().__init__(dataset, budget)
        self.place = torch.full((len(dataset),), -1).share_memory_()
        self.used = 0

    def __getitem__(self, index: int) -> torch.Tensor:
        place = int(self.place[index])
        if place >= 0:
            return self.kept[place].clone()
        sample = self.dataset[index]
        if self.used < self.slots:
            self.kept[self.used] = sample
            self.place[index] = self.used
            self.used += 1
        return sample


class ShortByOne(Cached):
    def __len__(self) -> int:
        return len(self.dataset) - 1


class Lists(Cached):
    def hand_out(self, kept: torch.Tensor) -> Any:
        return kept.tolist()
