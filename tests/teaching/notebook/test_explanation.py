"""Errors of the learner's code, told in a sentence."""

import json
import pickle

import pytest
from torch.utils.data import DataLoader, Dataset

from course_utils.teaching.notebook import advice, explain, learner_line


class Broken(Dataset[int]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        raise KeyError("event 3 has no pulses")


def _catch(action: object) -> Exception:
    assert callable(action)
    try:
        action()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def _divide() -> float:
    return 1 / 0


def test_the_learners_own_line_is_shown() -> None:
    text = explain(_catch(_divide))
    assert "of _divide in test_explanation.py, `return 1 / 0`: ZeroDivisionError: " in text


def test_a_line_of_a_library_is_not_the_learners() -> None:
    assert "`json.loads(" in explain(_catch(lambda: json.loads("{")))


@pytest.mark.parametrize("num_workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_an_error_in_a_worker_reads_like_one_at_home(num_workers: int) -> None:
    loader = DataLoader(Broken(), num_workers=num_workers)
    text = explain(_catch(lambda: list(loader)))
    assert "of __getitem__ in test_explanation.py, `raise KeyError(" in text
    assert "KeyError: 'event 3 has no pulses'" in text
    assert "\n" not in text


def test_an_error_without_a_line_of_the_learners_says_so_little() -> None:
    error = ValueError("no\nsecond line")
    assert learner_line(error) == ""
    assert explain(error) == "ValueError: no"


def test_usual_errors_come_with_a_next_step() -> None:
    assert "fresh Python" in advice(NameError("np"))
    assert "pickled" in advice(pickle.PicklingError("x"))
    assert advice(ZeroDivisionError()) == ""
