"""Corpora, packed windows and blends: every token once per epoch, in any process, at any time."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from course_utils.loading.tokens import END, Blend, Corpus, PackedWindows
from course_utils.loading.tokens.blend import proportional_order
from course_utils.stories.figures import drawing
from notebooks.build import HERE, read_source

LENGTHS = {"numbers": (7, 1, 30, 12, 2, 48), "few": (5, 6)}


@pytest.fixture
def corpora(tmp_path: Path) -> dict[str, Corpus]:
    """Return corpora of tokens 1, 2, 3, ..., in which each document ends with END."""
    for name, lengths in LENGTHS.items():
        (tmp_path / name).mkdir()
        offsets = np.cumsum([0, *lengths])
        tokens = np.arange(1, offsets[-1] + 1).astype(np.uint16)
        tokens[offsets[1:] - 1] = END
        np.save(tmp_path / name / "tokens.npy", tokens)
        np.save(tmp_path / name / "offsets.npy", offsets)
    return {name: Corpus(tmp_path, name) for name in LENGTHS}


def test_document_ends_with_the_end_token(corpora: dict[str, Corpus]) -> None:
    numbers = corpora["numbers"]
    assert [len(document) for document in numbers] == [7, 1, 30, 12, 2, 48]
    assert numbers[0].tolist() == [1, 2, 3, 4, 5, 6, END]
    assert numbers[-1][0] == 53
    assert all(document[-1] == END for document in numbers)
    with pytest.raises(IndexError):
        numbers[6]
    numbers.offsets = numbers.offsets[:2]
    assert len(numbers.tokens) == 100  # opens the file
    assert len(pickle.dumps(numbers)) < 1_000
    assert pickle.loads(pickle.dumps(numbers))[0].tolist() == numbers[0].tolist()


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


def test_source_counts_are_within_two_samples_of_their_share() -> None:
    for number, count in ((2, 1), (3, 10), (5, 1_000), (8, 1_000)):
        rng = np.random.default_rng(number)
        for _ in range(20):
            weights = rng.dirichlet(np.full(number, rng.choice([0.3, 1, 5]))) + 1e-3
            sources, numbers = proportional_order(weights.tolist(), count)
            served = (sources[:, None] == np.arange(number)).cumsum(axis=0)
            shares = np.arange(1, count + 1)[:, None] * weights / weights.sum()
            assert np.abs(served - shares).max() < 2, (number, count)
            assert (numbers == served[np.arange(count), sources] - 1).all()
    in_percent, counts = proportional_order([0.2, 0.1], 9)[0], proportional_order([2, 1], 9)[0]
    assert in_percent.tolist() == counts.tolist()
    assert counts.tolist().count(0) == 6


def test_finished_corpus_starts_again_in_a_different_order(corpora: dict[str, Corpus]) -> None:
    blend = Blend([*corpora.values()], [1, 3], length=5, count=12)
    assert [len(windows) for windows in blend.windows] == [3, 9]
    assert [round(windows.epochs, 2) for windows in blend.windows] == [0.16, 4.5]
    turns = list(zip(blend.sources.tolist(), blend.numbers.tolist(), strict=True))
    assert len(set(turns)) == len(turns) == len(blend)
    for n, (source, number) in enumerate(turns):
        assert blend[n].tolist() == blend.windows[source][number].tolist()
    for weights in ([1], [1, 0], [1, float("nan")]):
        with pytest.raises(ValueError, match="one weight above 0 for each"):
            Blend([*corpora.values()], weights, length=5, count=10)
