"""Tokens and lines of text, in typical user code."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    get_worker_info,
)

from benchmarks.diagnose.loops import Counted, InMemory, Loop, Sleep, fixed, known, step_of


class TokenChunks(Dataset[torch.Tensor]):
    """Chunks of one long tensor of tokens at a random offset: BabyLlama's dataset."""

    def __init__(self, length: int = 128):
        """Create three million tokens."""
        self.tokens, self.length = torch.arange(3_000_000), length

    def __len__(self) -> int:
        return len(self.tokens) // self.length - 1

    def __getitem__(self, index: int) -> torch.Tensor:
        start = index * self.length + random.randrange(self.length)
        return self.tokens[start : start + self.length]


class TokenBatches(TokenChunks):
    """The same chunks, with one access per batch."""

    def __getitem__(self, indices: Any) -> torch.Tensor:
        windows = sliding_window_view(self.tokens.numpy(), self.length)
        starts = np.array(indices) * self.length
        starts += np.random.randint(self.length, size=len(indices))
        return torch.from_numpy(windows[starts])


class TokenLists(TokenBatches):
    """The same chunks with one access per batch, returned as a list of samples."""

    __getitem__ = TokenChunks.__getitem__

    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        return list(TokenBatches.__getitem__(self, indices))


@known("tokens in memory, step of 0.3 ms", "CPU")
def _token_chunks(folder: Path) -> Loop:
    return DataLoader(TokenChunks(), batch_size=64, shuffle=True), Sleep(0.3)


@fixed("tokens in memory, step of 0.3 ms", "whole-batches-by-hand")
def _token_batches(folder: Path) -> Loop:
    dataset = TokenBatches()
    sampler = BatchSampler(RandomSampler(dataset), 64, drop_last=False)
    return DataLoader(dataset, sampler=sampler, batch_size=None), Sleep(0.3)


@fixed("tokens in memory, step of 0.3 ms", "one-access")
def _token_lists(folder: Path) -> Loop:
    return DataLoader(TokenLists(), batch_size=64, shuffle=True), Sleep(0.3)


class RandomWindows:
    """Batches of random windows, stacked one by one: nanoGPT's `get_batch` as an iterable."""

    def __init__(self, folder: Path, batch_size: int = 64, length: int = 256):
        """Write a file of tokens. The batch size is that of `train_shakespeare_char`."""
        self.file, self.size, self.length = folder / "train.bin", batch_size, length
        np.arange(3_000_000, dtype=np.uint16).tofile(self.file)

    def __iter__(self) -> Iterator[Any]:
        """Yield windows and the same windows one token later, indefinitely."""
        while True:
            data = np.memmap(self.file, dtype=np.uint16, mode="r")
            starts = torch.randint(len(data) - self.length, (self.size,)).tolist()
            rows = [data[i : i + self.length + 1].astype(np.int64) for i in starts]
            x = torch.stack([torch.from_numpy(row[:-1]) for row in rows])
            yield x, torch.stack([torch.from_numpy(row[1:]) for row in rows])


class GatheredWindows(RandomWindows):
    """The same windows, read with one gather."""

    def __iter__(self) -> Iterator[Any]:
        """Yield windows and the same windows one token later, indefinitely."""
        data, window = np.memmap(self.file, dtype=np.uint16, mode="r"), np.arange(self.length + 1)
        while True:
            starts = torch.randint(len(data) - self.length, (self.size, 1)).numpy()
            rows = torch.from_numpy(data[starts + window].astype(np.int64))
            yield rows[:, :-1], rows[:, 1:]


@known("random windows of tokens, no DataLoader", "CPU")
def _windows(folder: Path) -> Loop:
    return RandomWindows(folder), Sleep(0.2)


@fixed("random windows of tokens, no DataLoader")
def _gathered(folder: Path) -> Loop:
    return GatheredWindows(folder), Sleep(0.2)


def _collated_text(texts: list[str]) -> torch.Tensor:
    """Turn texts into padded tokens, in Python."""
    rows = [[hash(word) % 5000 for word in text.split()] for text in texts]
    longest = max(map(len, rows))
    return torch.tensor([row + [0] * (longest - len(row)) for row in rows])


class Texts(Counted):
    """Lines of text."""

    count = 8000

    def __getitem__(self, index: int) -> str:
        return "the quick brown fox jumps over the lazy dog " * (8 + index % 9)


@known("tokens made in the collate function", "collate or IPC")
def _texts(folder: Path) -> Loop:
    return DataLoader(Texts(), batch_size=64, collate_fn=_collated_text), step_of(1.5)


@fixed("tokens made in the collate function", "collate-arrays")
def _tokens(folder: Path) -> Loop:
    tokens = [_collated_text([text])[0] for text in map(Texts().__getitem__, range(8000))]
    pad = partial(pad_sequence, batch_first=True)
    return DataLoader(cast(Any, tokens), batch_size=64, collate_fn=pad), step_of(1.5)


class Lines(IterableDataset[torch.Tensor]):
    """A stream that ignores workers, so each worker would yield all of it."""

    def __init__(self, shared_out: bool = False):
        """Divide the stream among workers if `shared_out`."""
        self.shared_out = shared_out

    def __iter__(self) -> Iterator[torch.Tensor]:
        """Yield numbers parsed from lines of text."""
        info = get_worker_info() if self.shared_out else None
        first, step = (info.id, info.num_workers) if info else (0, 1)
        for number in range(first, 20_000, step):
            line = ",".join(str(number + i) for i in range(100))
            yield torch.tensor([float(word) for word in line.split(",")])


@known("a stream that ignores its workers", "CPU")
def _lines(folder: Path) -> Loop:
    return DataLoader(Lines(), batch_size=64), step_of(1.5)


@fixed("a stream that ignores its workers", "more-workers")
def _shared_lines(folder: Path) -> Loop:
    return DataLoader(Lines(shared_out=True), batch_size=64, num_workers=2), step_of(1.5)


@fixed("a stream that ignores its workers", "precompute")
def _numbers(folder: Path) -> Loop:
    return DataLoader(InMemory(20_000, 100), batch_size=64), step_of(1.5)
