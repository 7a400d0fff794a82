"""Packed windows: every token is a target once per epoch, in any process, at any time."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from course_utils.loading.tokens import END, Corpus, PackedWindows
from course_utils.stories.figures import drawing
from notebooks.build import HERE, read_source


def test_every_token_except_a_rest_is_a_target_once_per_epoch(corpora: dict[str, Corpus]) -> None:
    for length in (1, 7, 8, 50, 99):
        windows = PackedWindows(corpora["numbers"], length, count=3 * (99 // length))
        assert windows.epochs == 3
        for epoch in range(3):
            first = epoch * windows.per_epoch
            served = torch.stack([windows[first + n] for n in range(windows.per_epoch)])
            targets = served[:, 1:].flatten()
            tokens = targets[targets != END]
            assert len(targets) == 99 // length * length
            assert len(tokens.unique()) == len(tokens), (length, epoch)


def test_window_contains_consecutive_tokens_of_the_epoch(corpora: dict[str, Corpus]) -> None:
    numbers = corpora["numbers"]
    windows = PackedWindows(numbers, 9)
    documents, ends, order = windows.index(0)
    packed = np.concatenate([numbers[document] for document in documents])
    assert ends.tolist() == [end + 1 for end in np.flatnonzero(packed == END)]
    for n, place in enumerate(order):
        assert windows[n].tolist() == packed[9 * place : 9 * place + 10].tolist()


def test_epochs_and_seeds_have_different_orders(corpora: dict[str, Corpus]) -> None:
    def epoch(seed: int, number: int) -> list[list[int]]:
        windows = PackedWindows(corpora["numbers"], 9, count=22, seed=seed)
        return [windows[11 * number + n].tolist() for n in range(11)]

    assert epoch(0, 1) == epoch(0, 1)
    assert epoch(0, 0) != epoch(0, 1) != epoch(1, 1)


@pytest.mark.slow
def test_window_depends_only_on_its_index(corpora: dict[str, Corpus], start_method: str) -> None:
    windows, again = (PackedWindows(corpora["numbers"], 9, count=40) for _ in range(2))
    loader = DataLoader(windows, 4, num_workers=2, multiprocessing_context=start_method)
    served = torch.cat([*loader]).tolist()
    for n in (25, 3, 12, -1):
        assert again[n].tolist() == served[n]
    with pytest.raises(IndexError):
        windows[40]
    for length in (0, -1, 100):
        with pytest.raises(ValueError, match=r"which has 100\. Choose a length from 1 to 99"):
            PackedWindows(corpora["numbers"], length)


def test_mask_of_notebook_12_limits_tokens_to_their_document() -> None:
    cells = read_source(HERE / "source/12_feed_a_language_model.py").cells
    (code,) = (cell.source for cell in cells if "np.cumsum(ends)" in cell.source)
    docs = [torch.tensor([1, END, 3, 4])] * 20
    known: dict[str, Any] = {"np": np, "END": END, "drawing": drawing, "docs": docs}
    exec(code, known)
    assert known["within"].tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]]
