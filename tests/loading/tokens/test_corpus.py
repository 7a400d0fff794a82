"""A corpus: documents, a map that stays where it is, and what is said where there is none."""

import pickle
from pathlib import Path

import pytest

from course_utils.loading.tokens import END, Corpus


def test_a_document_ends_with_the_token_that_says_so(corpora: dict[str, Corpus]) -> None:
    numbers = corpora["numbers"]
    assert [len(document) for document in numbers] == [7, 1, 30, 12, 2, 48]
    assert numbers[0].tolist() == [1, 2, 3, 4, 5, 6, END]
    assert numbers[-1][0] == 53
    assert all(document[-1] == END for document in numbers)
    with pytest.raises(IndexError):
        numbers[6]


def test_a_corpus_goes_to_a_worker_without_its_tokens(corpora: dict[str, Corpus]) -> None:
    numbers = corpora["numbers"]
    numbers.offsets = numbers.offsets[:2]
    assert len(numbers.tokens) == 100  # it is open now
    assert len(pickle.dumps(numbers)) < 1_000
    assert pickle.loads(pickle.dumps(numbers))[0].tolist() == numbers[0].tolist()


def test_what_is_there_instead_is_named(corpora: dict[str, Corpus], tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no corpus 'code' in .*; choose one of few, numb"):
        Corpus(tmp_path, "code")
    with pytest.raises(FileNotFoundError, match=r"make some with `python -m course_data\.make_tok"):
        Corpus(tmp_path / "few", "code")
