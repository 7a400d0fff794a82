"""What every test shares: small data, no window, and the three ways to start a worker."""

import multiprocessing
import os
from collections.abc import Iterator
from types import FunctionType

import pytest

os.environ.setdefault("COURSE_SIZE", "S")
os.environ.setdefault("MPLBACKEND", "Agg")


def pytest_make_parametrize_id(val: object) -> str | None:
    """Call a function by its name, not its address: processes that share the tests must agree."""
    return val.__name__ if isinstance(val, FunctionType) else None


@pytest.fixture(autouse=True)
def _start_method_stays() -> Iterator[None]:
    """Undo what a test, or the code it runs, chose for the whole process."""
    before = multiprocessing.get_start_method(allow_none=True)
    yield
    if multiprocessing.get_start_method(allow_none=True) != before:
        multiprocessing.set_start_method(before, force=True)


@pytest.fixture(params=["fork", "spawn", "forkserver"])
def start_method(request: pytest.FixtureRequest) -> str:
    """Name a way to start a process: pass it on as `multiprocessing_context=start_method`."""
    name: str = request.param
    if name not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system cannot start processes by {name}")
    return name
