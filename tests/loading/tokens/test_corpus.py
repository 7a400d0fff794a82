"""Corpora: documents, a memory map that is not pickled, and the error for a missing corpus."""

import pickle
from pathlib import Path

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


def test_pickled_corpus_contains_no_tokens(corpora: dict[str, Corpus]) -> None:
    numbers = corpora["numbers"]
    numbers.offsets = numbers.offsets[:2]
    assert len(numbers.tokens) == 100  # opens the file
    assert len(pickle.dumps(numbers)) < 1_000
    assert pickle.loads(pickle.dumps(numbers))[0].tolist() == numbers[0].tolist()


def test_missing_corpus_lists_the_existing_ones(corpora: dict[str, Corpus], tmp_path: Path) -> None:
    with pytest.raises(
        FileNotFoundError, match=r"no corpus 'code' in .*\. Choose one of few, numb"
    ):
        Corpus(tmp_path, "code")
    with pytest.raises(
        FileNotFoundError, match=r"Create some with `python -m data_scripts\.make_tok"
    ):
        Corpus(tmp_path / "few", "code")
