"""What every test shares: small data, no window, and the three ways to start a worker."""

import multiprocessing
import os

import pytest

os.environ.setdefault("COURSE_SIZE", "S")
os.environ.setdefault("MPLBACKEND", "Agg")


@pytest.fixture(params=["fork", "spawn", "forkserver"])
def start_method(request: pytest.FixtureRequest) -> str:
    """Name a way to start a process: pass it on as `multiprocessing_context=start_method`."""
    name: str = request.param
    if name not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system cannot start processes by {name}")
    return name
