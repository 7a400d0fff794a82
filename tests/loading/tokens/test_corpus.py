"""Corpora: documents, a memory map that is not pickled, and the error for a missing corpus."""

import pickle
from pathlib import Path

import numpy as np
import pytest

from course_utils.loading.tokens import END, Corpus


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


def test_missing_and_inconsistent_corpora_are_named(
    corpora: dict[str, Corpus], tmp_path: Path
) -> None:
    with pytest.raises(FileNotFoundError, match=r"no corpus 'code' .*\. Choose one of few, numb"):
        Corpus(tmp_path, "code")
    with pytest.raises(FileNotFoundError, match=r"with `python -m data_scripts\.make_tok"):
        Corpus(tmp_path / "few", "code")
    for offsets in ([0], [0, 4], [0, 9, 4, 11], [1, 11]):
        np.save(tmp_path / "few/offsets.npy", offsets)
        with pytest.raises(ValueError, match=r"offsets\.npy does not fit the 11 tokens .*Write b"):
            Corpus(tmp_path, "few")
