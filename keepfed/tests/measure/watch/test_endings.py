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
from tests.measure.watch import endings

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="no fork and no signals"),
]
EPOCH = "".join(f"{[float(n) for n in range(first, first + 4)]}\n" for first in range(0, 40, 4))
SUMS = "".join(f"{float(4 * first + 6)}\n" for first in range(0, 40, 4))
# exit code, output, and the last line of the errors
ENDS: dict[str, tuple[int, str, list[str]]] = {
    "interrupt": (-2, EPOCH, ["KeyboardInterrupt"]),
    "os._exit": (4, EPOCH, []),
    "exception": (1, EPOCH, ["ValueError: end of the loop"]),
    "exception in the dataset": (1, EPOCH[: EPOCH.index("[28.0")], ["LookupError: sample 30"]),
    "fork": (0, f"{EPOCH}{SUMS}6\n", []),
}


def _started(command: list[str], folder: Path | None) -> subprocess.Popen[str]:
    environment = {} if folder is None else {"env": prepare(folder)}
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, *command], **pipes, **environment)


def test_watched_program_ends_as_if_it_were_not_watched(tmp_path: Path) -> None:
    output, _ = _started([endings.__file__], tmp_path).communicate(timeout=100)
    found = json.loads(output)
    (code, *_) = found.pop("crash in a worker")  # its output before torch notices varies
    assert code == 1
    assert found == {ending: [*expected] for ending, expected in ENDS.items()}
    seen = read_all(tmp_path)
    assert len(seen) == len(endings.ENDINGS) + 1  # one more for the fork inside a fork
    assert all(one.totals.iterations >= 2 for one in seen)  # os._exit loses unwritten iterations
