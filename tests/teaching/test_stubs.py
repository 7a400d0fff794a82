"""What counts as not yet written."""

from dataclasses import dataclass
from functools import wraps
from typing import Any

import numpy as np
import pytest
from torch.utils.data import DataLoader, Dataset

from course_utils.teaching.exercise.stubs import find_stub


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
    return x[..., 0]


def written_with_a_protocol() -> Any:
    class Shape:
        def area(self) -> float: ...

    return Shape


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


class Whole(Dataset[int]):
    def __getitem__(self, index: int) -> int:
        return index


@dataclass
class Settings:
    workers: int = 2


UNWRITTEN = [
    only_dots,
    only_docstring,
    dots_after_code,
    dots_in_a_branch,
    dots_as_a_value,
    dots_as_an_argument,
    decorated(only_dots),
    StubProperty,
    StubStatic,
    Empty,
    ...,
    [1, ...],
    {"workers": ...},
]
WRITTEN = [
    written,
    written_with_a_protocol,
    decorated(written),
    lambda x: x,
    len,
    Whole,
    Settings,
    Settings(),
    DataLoader,
    0,
    "",
    [],
    np.zeros(3),
]


@pytest.mark.parametrize("attempt", UNWRITTEN)
def test_an_unwritten_part_is_found(attempt: Any) -> None:
    assert find_stub(attempt)


@pytest.mark.parametrize("attempt", WRITTEN)
def test_what_is_written_is_no_stub(attempt: Any) -> None:
    assert find_stub(attempt) is None


def test_the_unwritten_method_is_named() -> None:
    assert find_stub(HalfWritten) == "HalfWritten.__getitem__"


def test_an_object_of_the_notebook_is_judged_by_its_class(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_stub(HalfWritten()) is None
    monkeypatch.setattr(HalfWritten, "__module__", "__main__")
    assert find_stub(HalfWritten()) == "HalfWritten.__getitem__"
