import os
import signal
import sys
from multiprocessing import get_context
from pathlib import Path

import pytest

from data_scripts import files, make_events

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(sys.platform == "win32", reason="uses signals of Unix"),
]
FOREVER = 60.0


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(make_events.COUNTS, "S", 600)


def run(out: Path, *options: str, seconds: float = FOREVER) -> int | None:
    """Run a script in a forked process, kill it after some seconds of work, return its exit code.

    The seconds are CPU time, so they are the same moment on a busy machine.
    """
    arguments = ["--size", "S", "--out", str(out), *options]

    def work() -> None:
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
        os._exit(make_events.main(arguments))

    process = get_context("fork").Process(target=work)
    process.start()
    process.join()
    return process.exitcode


def test_killed_run_leaves_nothing_or_a_complete_folder(tmp_path: Path) -> None:
    ends = []
    for seconds in (0.02, 0.1, 0.35):
        out = tmp_path / f"events-{seconds}"
        for options in ([], ["--force"]):
            ends.append(run(out, *options, seconds=seconds))
            assert not out.exists() or files.corrupted(out) == []
            assert run(out) == 0
            assert files.corrupted(out) == []
    assert ends[:2] == [-signal.SIGVTALRM] * 2
    assert not list(tmp_path.glob(".*unfinished"))
