"""Fixtures and hooks of keepfed's tests, which those of the course load too.

They import nothing of the course. A test takes the start method of its workers, a small control
group, a folder to import from, or a second attempt on a busy machine from here.
"""

import gc
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, TypeVar
from zlib import crc32

import pytest

from keepfed import limits
from keepfed.measure.spans import activate, current

os.environ.setdefault("MPLBACKEND", "Agg")
os.unsetenv("COLUMNS")  # pytest imports readline, which sets it for child processes
if "PYTEST_XDIST_WORKER" in os.environ:  # spinning torch threads take cores from other processes
    os.environ["OMP_WAIT_POLICY"] = "passive"

PROJECT = str(Path(__file__).parents[1])  # $PYTHONPATH of programs that import from `tests`
FULL = os.environ.get("COURSE_TEST_MATRIX") == "full"
METHODS = multiprocessing.get_all_start_methods()
# A spawned process imports torch, which takes seconds, so a short run spawns few processes.
TURNS = [method for method in ("fork", "forkserver") * 3 if method in METHODS] + ["spawn"]
T = TypeVar("T")


def run_python(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, **options)


@pytest.hookimpl(tryfirst=True)  # the course preloads more
def pytest_sessionstart() -> None:
    """Enable interrupts, and let the forkserver preload torch."""
    # background processes of a shell ignore interrupts, and so do their children
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in {"SIGHUP", "SIGQUIT"} & vars(signal).keys():
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    gc.disable()  # until all tests are collected, because imported modules stay in memory anyway
    if "forkserver" in METHODS:
        multiprocessing.set_forkserver_preload(["torch.utils.data", "keepfed.measure.hook"])


def pytest_collection_finish() -> None:
    """Restore the OpenMP wait policy for child processes, after torch has read it here."""
    os.environ.pop("OMP_WAIT_POLICY", None)
    gc.freeze()  # else each full collection scans all of torch and all tests
    gc.enable()


def pytest_make_parametrize_id(val: object) -> str | None:
    """Identify a function by name, because all test processes need the same IDs."""
    return val.__name__ if isinstance(val, FunctionType) else None


@pytest.fixture(autouse=True)
def _restore_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restore process-wide settings that a test has changed, and begin without a rank."""
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    before, trace = multiprocessing.get_start_method(allow_none=True), current()
    yield
    activate(trace)  # a tested loop that hangs records forever
    if multiprocessing.get_start_method(allow_none=True) != before:
        multiprocessing.set_start_method(before, force=True)


@pytest.fixture
def emulate_cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that emulates control groups, with 8 of 16 cores usable."""

    def enter(files: Mapping[str, str], own: str = "0::/\n") -> None:
        shutil.rmtree(tmp_path / "groups", ignore_errors=True)
        for name, text in {"own": own, **{f"groups/{name}": files[name] for name in files}}.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        monkeypatch.setattr(limits, "CGROUPS", tmp_path / "groups")
        monkeypatch.setattr(limits, "_OWN_CGROUP", tmp_path / "own")
        monkeypatch.setattr(limits, "all_cores", lambda: 16)
        monkeypatch.setattr(limits.os, "sched_getaffinity", lambda _: range(8), raising=False)

    return enter


@pytest.fixture(params=METHODS if FULL else None)
def start_method(request: pytest.FixtureRequest) -> str:
    """Return a start method; pass it on as `multiprocessing_context=start_method`.

    The name of a test determines its start method, independent of process and order. With
    COURSE_TEST_MATRIX=full, each test runs with all start methods.
    """
    turns = TURNS
    if request.node.get_closest_marker("many_workers"):
        turns = TURNS[:-1] or TURNS
    turn = turns[crc32(request.node.name.encode()) % len(turns)]
    return str(getattr(request, "param", turn))


@pytest.fixture(scope="session")
def one_by_one() -> ModuleType:
    """Return torchvision's transform of one image, imported here because that takes seconds."""
    return import_module("torchvision.transforms.v2.functional")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield a folder from which this process and its workers can import modules."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path])
        patch.setenv("PYTHONPATH", "")
        yield tmp_path_factory.mktemp("cells")


@pytest.fixture
def record_retry(
    request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> Callable[[], None]:
    """Return a function that counts second attempts on a busy machine for the summary."""
    name = request.node.nodeid.partition("@")[0]
    return lambda: record_property("retries on a busy machine", name)


@pytest.fixture
def retry(record_retry: Callable[[], None]) -> Callable[[Callable[[], T], Callable[[T], bool]], T]:
    """Return a function that calls `attempt`, and once more if the result is not `good`."""

    def run(attempt: Callable[[], T], good: Callable[[T], bool]) -> T:
        result = attempt()
        if good(result):
            return result
        record_retry()
        return attempt()

    return run


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what the tests recorded, such as second attempts and the seconds of a notebook."""
    reports = [report for group in terminalreporter.stats.values() for report in group]
    recorded = {pair for report in reports for pair in getattr(report, "user_properties", ())}
    for title in sorted({title for title, _ in recorded}):
        lines = sorted(str(line) for name, line in recorded if name == title)
        terminalreporter.section(f"{title}: {len(lines)}")
        terminalreporter.write_line("\n".join(lines))
