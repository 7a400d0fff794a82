"""Packed windows: every token is a target once per epoch, in any process, at any time."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from course_utils.loading.tokens import END, Corpus, PackedWindows


@pytest.mark.parametrize("length", [1, 7, 8, 50, 99])
def test_every_token_except_a_rest_is_a_target_once_per_epoch(
    corpora: dict[str, Corpus], length: int
) -> None:
    numbers = corpora["numbers"]
    windows = PackedWindows(numbers, length, count=3 * (99 // length))
    assert windows.epochs == 3
    for epoch in range(3):
        first = epoch * windows.per_epoch
        served = torch.stack([windows[first + n] for n in range(windows.per_epoch)])
        targets = served[:, 1:].flatten()
        seen = targets[targets != END]
        assert len(targets) == 99 // length * length
        assert len(seen.unique()) == len(seen)


def test_window_contains_consecutive_tokens_of_the_epoch(corpora: dict[str, Corpus]) -> None:
    numbers = corpora["numbers"]
    windows = PackedWindows(numbers, 9)
    documents, ends, order = windows.index(0)
    packed = np.concatenate([numbers[document] for document in documents])
    assert ends.tolist() == [end + 1 for end in np.flatnonzero(packed == END)]
    for n, place in enumerate(order):
        assert windows[n].tolist() == packed[9 * place : 9 * place + 10].tolist()


def test_last_target_is_the_first_input_of_the_next_window(
    corpora: dict[str, Corpus],
) -> None:
    windows = PackedWindows(corpora["numbers"], 9)
    in_order = [windows[n] for n in np.argsort(windows.index(0).windows)]
    assert all(one[-1] == other[0] for one, other in pairwise(in_order))


def test_epochs_and_seeds_have_different_orders(corpora: dict[str, Corpus]) -> None:
    def epoch(seed: int, number: int) -> list[list[int]]:
        windows = PackedWindows(corpora["numbers"], 9, count=22, seed=seed)
        return [windows[11 * number + n].tolist() for n in range(11)]

    assert epoch(0, 1) == epoch(0, 1)
    assert epoch(0, 0) != epoch(0, 1) != epoch(1, 1)


def test_window_depends_only_on_its_index(
    corpora: dict[str, Corpus],
) -> None:
    whole = PackedWindows(corpora["numbers"], 9, count=30)
    again = PackedWindows(corpora["numbers"], 9, count=30)
    assert [again[n].tolist() for n in (25, 3, 12)] == [whole[n].tolist() for n in (25, 3, 12)]
    assert again[-1].tolist() == whole[29].tolist()
    with pytest.raises(IndexError):
        whole[30]


@pytest.mark.slow
def test_workers_serve_the_same_windows(corpora: dict[str, Corpus], start_method: str) -> None:
    windows = PackedWindows(corpora["numbers"], 9, count=40)
    loader = DataLoader(windows, 4, num_workers=2, multiprocessing_context=start_method)
    assert torch.cat([*loader]).tolist() == [windows[n].tolist() for n in range(40)]


@pytest.mark.parametrize("length", [0, -1, 100, 500])
def test_window_longer_than_the_corpus_is_rejected(corpora: dict[str, Corpus], length: int) -> None:
    with pytest.raises(ValueError, match=r"which has 100\. Choose a length from 1 to 99"):
        PackedWindows(corpora["numbers"], length)
