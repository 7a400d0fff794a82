import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest
from torch.utils.data import DataLoader, Dataset

from course_utils.teaching.notebook import advice, explain, find_stub, learner_line


def _class_in_it() -> Any:
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


@dataclass
class Settings:
    workers: int = 2


UNWRITTEN = """
def only_dots(x): ...
def only_docstring(x): "Say something."
def dots_in_a_branch(x):
    if x:
        return ...
    return x
def dots_as_a_value(x):
    y = ...
    return y
def dots_as_an_argument(x): return sorted(x, key=...)
class StubProperty:
    @property
    def size(self): ...
class StubStatic:
    @staticmethod
    def size(): ...
class Empty: "Nothing yet."
"""


def test_unwritten_parts_are_found_and_written_ones_are_not(tmp_path: Path) -> None:
    (tmp_path / "cell.py").write_text(UNWRITTEN)
    found = run_path(str(tmp_path / "cell.py"))
    stubs = [thing for name, thing in found.items() if not name.startswith("__")]
    assert len(stubs) == 8
    assert all(map(find_stub, [*stubs, decorated(stubs[0]), ..., [1, ...], {"workers": ...}]))
    written = [_class_in_it, decorated(_class_in_it), lambda x: x[..., 0], len, Settings]
    assert not any(map(find_stub, [*written, Settings(), DataLoader, 0, ""]))


def test_unwritten_method_is_named_even_for_an_instance(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_error_shows_the_learners_line_not_the_librarys() -> None:
    assert "test_learners_code.py, `json.loads(" in raised(lambda: json.loads("{"))
    error = ValueError("no\nsecond line")
    assert (learner_line(error), explain(error)) == ("", "ValueError: no")
    assert explain(ValueError("no.")) == "ValueError: no"
    linked = 'Original Traceback\n  File "/a/site-packages/torch/x.py", line 1, in f\n    f()'
    assert learner_line(ValueError(linked)) == ""


@pytest.mark.parametrize("num_workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_error_in_a_worker_reads_like_a_local_one(num_workers: int) -> None:
    text = raised(lambda: list(DataLoader(Broken(), num_workers=num_workers)))
    assert "of __getitem__ in test_learners_code.py, `raise KeyError(" in text
    assert "KeyError: 'event 3 has no pulses'" in text
    assert "\n" not in text


def test_common_errors_have_a_next_step() -> None:
    assert "new Python" in advice(NameError("np"))
    assert "pickled" in advice(pickle.PicklingError("x"))
    assert advice(ZeroDivisionError()) == ""
