"""Typical wrong answers to the exercises of notebook 01, importable by workers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

Batch = dict[str, Any]
Samples = list[dict[str, Any]]


def good_batch(samples: Samples, **changes: Any) -> Batch:
    pulses = pad_sequence([sample["pulses"] for sample in samples], batch_first=True)
    lengths = torch.tensor([len(sample["pulses"]) for sample in samples])
    energy = torch.tensor([sample["energy"] for sample in samples])
    mask = torch.arange(pulses.shape[1]) < lengths[:, None]
    return {"pulses": pulses, "mask": mask, "energy": energy} | changes


def a_tuple(samples: Samples) -> Any:
    return tuple(good_batch(samples).values())


def a_list_of_events(samples: Samples) -> Batch:
    return good_batch(samples, pulses=[sample["pulses"] for sample in samples])


def no_mask(samples: Samples) -> Batch:
    batch = good_batch(samples)
    del batch["mask"]
    return batch


def time_first(samples: Samples) -> Batch:
    return good_batch(samples, pulses=good_batch(samples)["pulses"].transpose(0, 1))


def squeezed(samples: Samples) -> Batch:
    return good_batch(samples, pulses=good_batch(samples)["pulses"].squeeze())


def nested(samples: Samples) -> Batch:
    events = [sample["pulses"] for sample in samples]
    return good_batch(samples, pulses=torch.nested.nested_tensor(events, layout=torch.jagged))


def cut_to_the_shortest(samples: Samples) -> Batch:
    shortest = min(len(sample["pulses"]) for sample in samples)
    return good_batch([{**sample, "pulses": sample["pulses"][:shortest]} for sample in samples])


def always_1000_wide(samples: Samples) -> Batch:
    pulses = good_batch(samples)["pulses"]
    return good_batch(samples, pulses=torch.cat([pulses, torch.zeros(len(pulses), 999, 4)], 1))


def doubles(samples: Samples) -> Batch:
    return good_batch(samples, pulses=good_batch(samples)["pulses"].double())


def zeros_in_front(samples: Samples) -> Batch:
    events = [sample["pulses"] for sample in samples]
    return good_batch(samples, pulses=pad_sequence(events, batch_first=True, padding_side="left"))


def padded_with_minus_one(samples: Samples) -> Batch:
    events = [sample["pulses"] for sample in samples]
    return good_batch(samples, pulses=pad_sequence(events, batch_first=True, padding_value=-1))


def sorted_by_length(samples: Samples) -> Batch:
    return good_batch(sorted(samples, key=lambda sample: len(sample["pulses"])))


def mask_upside_down(samples: Samples) -> Batch:
    return good_batch(samples, mask=~good_batch(samples)["mask"])


def mask_from_values(samples: Samples) -> Batch:
    return good_batch(samples, mask=(good_batch(samples)["pulses"] != 0).any(dim=-1))


def mask_all_true(samples: Samples) -> Batch:
    return good_batch(samples, mask=torch.ones_like(good_batch(samples)["mask"]))


def mask_of_floats(samples: Samples) -> Batch:
    return good_batch(samples, mask=good_batch(samples)["mask"].float())


def mask_per_value(samples: Samples) -> Batch:
    return good_batch(samples, mask=good_batch(samples)["pulses"] != 0)


def energies_as_doubles(samples: Samples) -> Batch:
    return good_batch(samples, energy=torch.from_numpy(np.array([s["energy"] for s in samples])))


def energies_as_a_column(samples: Samples) -> Batch:
    return good_batch(samples, energy=good_batch(samples)["energy"][:, None])


_widest = 0


def as_wide_as_ever(samples: Samples) -> Batch:
    """Remember the widest batch of this process, which shows only in workers' second batches."""
    global _widest
    batch = good_batch(samples)
    if torch.utils.data.get_worker_info() is None:
        return batch
    _widest = max(_widest, batch["pulses"].shape[1]) + 1
    missing = _widest - batch["pulses"].shape[1]
    return batch | {"pulses": torch.nn.functional.pad(batch["pulses"], (0, 0, 0, missing))}


Parts = tuple[np.ndarray, np.ndarray]


def good_split(run_id: np.ndarray, share: float, seed: int) -> Parts:
    runs = np.random.default_rng(seed).permutation(np.unique(run_id))
    in_valid = np.isin(run_id, runs[: round(share * len(runs))])
    return np.flatnonzero(~in_valid), np.flatnonzero(in_valid)


def split_events(run_id: np.ndarray, share: float, seed: int) -> Parts:
    order = np.random.default_rng(seed).permutation(len(run_id))
    first = round(share * len(run_id))
    return order[first:], order[:first]


def cut_the_file(run_id: np.ndarray, share: float, seed: int) -> Parts:
    first = round((1 - share) * len(run_id))
    return np.arange(first), np.arange(first, len(run_id))


def numbers_of_runs(run_id: np.ndarray, share: float, seed: int) -> Parts:
    runs = np.random.default_rng(seed).permutation(np.unique(run_id))
    first = round(share * len(runs))
    return runs[first:], runs[:first]


def true_or_false(run_id: np.ndarray, share: float, seed: int) -> Parts:
    valid = np.isin(np.arange(len(run_id)), good_split(run_id, share, seed)[1])
    return ~valid, valid


def only_validation(run_id: np.ndarray, share: float, seed: int) -> Any:
    return good_split(run_id, share, seed)[1].tolist()


def an_empty_part(run_id: np.ndarray, share: float, seed: int) -> Parts:
    return np.arange(len(run_id)), np.arange(0)


def parts_swapped(run_id: np.ndarray, share: float, seed: int) -> Parts:
    return good_split(run_id, 0.2 if share > 0.2 else 0.8, seed)


def runs_from_zero(run_id: np.ndarray, share: float, seed: int) -> Parts:
    train, valid = good_split(run_id, share, seed)
    return train[::2], valid


def events_twice(run_id: np.ndarray, share: float, seed: int) -> Parts:
    train, valid = good_split(run_id, share, seed)
    return train, np.repeat(valid, 2)


def seed_ignored(run_id: np.ndarray, share: float, seed: int) -> Parts:
    return good_split(run_id, share, 0)


def seed_forgotten(run_id: np.ndarray, share: float, seed: int) -> Parts:
    return good_split(run_id, share, int(np.random.default_rng().integers(1_000_000)))


class Reader:
    """Read events by number: what notebook 01 gives, in the words of a test."""

    def __init__(self, storage: Any, path: str, offsets: np.ndarray):
        self.storage, self.path, self.offsets = storage, path, offsets

    def __getitem__(self, index: int) -> np.ndarray:
        return self.read(index, index + 1)[0]

    def read(self, first: int, last: int) -> list[np.ndarray]:
        bounds = self.offsets[first : last + 1] - self.offsets[first]
        with self.storage.open(self.path) as file:
            file.seek(128 + 16 * int(self.offsets[first]))
            rows = np.frombuffer(file.read(16 * int(bounds[-1])), "<f4").reshape(-1, 4)
        return np.split(rows, bounds[1:-1])

    def blocks(self, order: Sequence[int]) -> dict[int, np.ndarray]:
        """Read neighbours in `order` together."""
        cuts = np.flatnonzero(np.diff(order) != 1) + 1
        found: dict[int, np.ndarray] = {}
        for block in np.split(np.array(order), cuts):
            numbers = range(int(block[0]), int(block[-1]) + 1)
            found.update(zip(numbers, self.read(numbers.start, numbers.stop), strict=True))
        return found


class Misspelt(Reader):
    def __get_items__(self, indices: list[int]) -> list[np.ndarray]:
        return [self[index] for index in indices]


class OneByOne(Reader):
    def __getitems__(self, indices: list[int]) -> list[np.ndarray]:
        return [self[index] for index in indices]


class InSortedOrder(Reader):
    def __getitems__(self, indices: list[int]) -> list[np.ndarray]:
        found = self.blocks(np.unique(indices))
        return [found[index] for index in sorted(indices)]


class WithoutTwins(Reader):
    def __getitems__(self, indices: list[int]) -> list[np.ndarray]:
        found = self.blocks(np.unique(indices))
        return [found[index] for index in dict.fromkeys(indices)]


class ADict(Reader):
    def __getitems__(self, indices: list[int]) -> Any:
        return self.blocks(np.unique(indices))


class FromFirstToLast(Reader):
    def __getitems__(self, indices: list[int]) -> list[np.ndarray]:
        first, last = min(indices), max(indices)
        events = self.read(first, last + 1)
        return [events[index - first] for index in indices]


class WithoutSorting(Reader):
    def __getitems__(self, indices: list[int]) -> list[np.ndarray]:
        found = self.blocks(indices)
        return [found[index] for index in indices]


class TheNextOne(Reader):
    def __getitems__(self, indices: list[int]) -> list[np.ndarray]:
        events = [*self.blocks(np.unique(indices)).values(), np.zeros((3, 4), "f4")]
        return events[1 : 1 + len(indices)] if len(set(indices)) == len(indices) else events
