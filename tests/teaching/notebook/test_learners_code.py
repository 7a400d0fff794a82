"""The learner's code: what counts as not yet written, and errors told in a sentence."""

import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import pytest
from torch.utils.data import DataLoader, Dataset

from course_utils.teaching.notebook import advice, explain, find_stub, learner_line


def only_dots(x: int) -> int:
    """Say something."""
    ...  # your code, about 2 lines


def only_docstring(x: int) -> None:
    """Say something."""


def dots_after_code(x: int) -> int:
    if x < 0:
        raise ValueError
    ...


def dots_in_a_branch(x: int) -> int:
    if x:
        return ...
    return x


def dots_as_a_value(x: int) -> Any:
    y = ...
    return y


def dots_as_an_argument(x: int) -> Any:
    return list(range(x), key=...)  # type: ignore[call-overload]


def written(x: Any) -> Any:
    class Shape:
        def area(self) -> float: ...

    return x[..., 0], Shape


def decorated(function: Any) -> Any:
    @wraps(function)
    def wrapper(*args: Any) -> Any:
        return function(*args)

    return wrapper


class HalfWritten(Dataset[int]):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> int: ...


class StubProperty:
    @property
    def size(self) -> int: ...


class StubStatic:
    @staticmethod
    def size() -> int: ...


class Empty(Dataset[int]):
    """Nothing yet."""

    ...


@dataclass
class Settings:
    workers: int = 2


UNWRITTEN = [
    *(only_dots, only_docstring, dots_after_code, dots_in_a_branch, dots_as_a_value),
    *(dots_as_an_argument, decorated(only_dots), StubProperty, StubStatic, Empty),
    *(..., [1, ...], {"workers": ...}),
]
WRITTEN = [written, decorated(written), lambda x: x, len, Settings, Settings(), DataLoader, 0, ""]


def test_an_unwritten_part_is_found_and_what_is_written_is_none() -> None:
    assert all(find_stub(attempt) for attempt in UNWRITTEN)
    assert [find_stub(attempt) for attempt in WRITTEN] == [None] * len(WRITTEN)


def test_the_unwritten_method_is_named_and_an_object_judged_by_the_class_in_the_notebook(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert find_stub(HalfWritten) == "HalfWritten.__getitem__"
    assert find_stub(HalfWritten()) is None
    monkeypatch.setattr(HalfWritten, "__module__", "__main__")
    assert find_stub(HalfWritten()) == "HalfWritten.__getitem__"


class Broken(Dataset[int]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        raise KeyError("event 3 has no pulses")


def raised(action: Callable[[], object]) -> str:
    with pytest.raises(Exception) as caught:  # noqa: PT011
        action()
    return explain(caught.value)


def test_the_learners_own_line_is_shown_and_not_that_of_a_library() -> None:
    assert "test_learners_code.py, `json.loads(" in raised(lambda: json.loads("{"))
    error = ValueError("no\nsecond line")
    assert (learner_line(error), explain(error)) == ("", "ValueError: no")


@pytest.mark.parametrize("num_workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_an_error_in_a_worker_reads_like_one_at_home(num_workers: int) -> None:
    text = raised(lambda: list(DataLoader(Broken(), num_workers=num_workers)))
    assert "of __getitem__ in test_learners_code.py, `raise KeyError(" in text
    assert "KeyError: 'event 3 has no pulses'" in text
    assert "\n" not in text


def test_usual_errors_come_with_a_next_step() -> None:
    assert "fresh Python" in advice(NameError("np"))
    assert "pickled" in advice(pickle.PicklingError("x"))
    assert advice(ZeroDivisionError()) == ""
