"""A watched program has the same exit code, output and last error as an unwatched one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from keepfed.measure.watch.attach import prepare
from keepfed.measure.watch.timing.ring_file import read_all
from tests.measure.watch import endings, train

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="no fork and no signals"),
]
CODES = {
    "interrupt": -2, "terminate": -15, "sys.exit": 3, "os._exit": 4, "exception": 1,
    "exception in the dataset": 1, "crash in a worker": 1,
}  # fmt: skip


def _started(command: list[str], folder: Path | None) -> subprocess.Popen[str]:
    environment = {} if folder is None else {"env": prepare(folder)}
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, *command], **pipes, **environment)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """Results of all forks, without and with `keepfed watch`."""
    folder = tmp_path_factory.mktemp("records")
    runs = [_started([endings.__file__], where) for where in (None, folder)]
    plain, watched = (json.loads(run.communicate(timeout=100)[0]) for run in runs)
    seen = read_all(folder)
    assert len(seen) == len(endings.ENDINGS) + 1  # one more for the fork inside a fork
    assert all(one.totals.iterations >= 2 for one in seen)  # os._exit loses unwritten iterations
    return plain, watched


@pytest.mark.parametrize("ending", endings.ENDINGS)
def test_watched_program_ends_like_unwatched_one(
    ending: str, tables: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    plain, watched = (table[ending] for table in tables)
    if ending == "crash in a worker":  # the output before torch notices the crash varies
        plain, watched = plain[:1], watched[:1]
    assert watched == plain
    assert plain[0] == CODES.get(ending, 0)


@pytest.mark.full
def test_watched_torchrun_ends_like_unwatched_one(tmp_path: Path) -> None:
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [*launch, str(Path(train.__file__)), "0", "raise"]
    runs = [_started(command, folder) for folder in (None, tmp_path)]
    (plain, _), (watched, _) = (run.communicate(timeout=100) for run in runs)
    assert sorted(watched.splitlines()) == sorted(plain.splitlines()) != []
    assert [run.returncode for run in runs] == [1, 1]
