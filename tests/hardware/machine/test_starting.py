"""Start workers from a server that has loaded their modules."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from course_utils.hardware.machine import use_start_method


def printed(program: str, folder: Path) -> Any:
    (folder / "program.py").write_text(program)
    command = [sys.executable, folder / "program.py"]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


PROGRAM = """
import json, multiprocessing, sys, warnings
from course_utils.hardware.machine import use_start_method

def loaded():
    return sorted({"torch", "wave"} & set(sys.modules))

if __name__ == "__main__":
    method = use_start_method(["wave"])
    use_start_method(["wave"])  # again, as when a cell runs twice
    with multiprocessing.Pool(1) as pool:
        in_worker = pool.apply(loaded)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        use_start_method(["wave", "json"])
    print(json.dumps([method, in_worker, *(str(warning.message) for warning in told)]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no forkserver there")
@pytest.mark.slow
def test_workers_use_preloaded_modules_and_late_preload_warns(tmp_path):
    method, in_worker, said = printed(PROGRAM, tmp_path)
    assert (method, in_worker) == ("forkserver", ["wave"])
    assert said.startswith("Cannot preload json, because the server that starts workers is already")
    assert "Restart Python" in said


SLOW = """
import time
from pathlib import Path

folder = Path(__file__).parent
(folder / "begun").touch()
try:
    while not (folder / "interrupted").exists():
        time.sleep(0.01)
except KeyboardInterrupt:
    raise ImportError("as NumPy does")
"""
INTERRUPTED = """
import gc, json, multiprocessing, os, signal, sys, time
from multiprocessing import forkserver
from pathlib import Path
from course_utils.hardware.machine import use_start_method

folder = Path(__file__).parent

def loaded():
    return "slow" in sys.modules

def collects():
    return gc.isenabled(), gc.get_freeze_count() > len(gc.get_objects())

def collects_in_its_fork():
    gc.disable()
    gc.unfreeze()
    ours, theirs = multiprocessing.Pipe()
    if os.fork() == 0:
        theirs.send(collects())
        os._exit(0)
    os.wait()
    return ours.recv()

def hears():
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(20)
    except KeyboardInterrupt:
        return True

if __name__ == "__main__":
    os.environ["PYTHONPATH"] = str(folder)
    use_start_method(["course_utils.hardware.machine.server", "slow"])
    while not (folder / "begun").exists():
        time.sleep(0.01)
    os.kill(forkserver._forkserver._forkserver_pid, signal.SIGINT)
    (folder / "interrupted").touch()
    with multiprocessing.Pool(1) as pool:
        tasks = loaded, hears, collects, collects_in_its_fork
        print(json.dumps([pool.apply(task) for task in tasks]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no forkserver there")
@pytest.mark.slow
def test_server_survives_an_interrupt_and_leaves_garbage_to_its_workers(tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)
    in_worker, hears, collects, in_its_fork = printed(INTERRUPTED, tmp_path)
    assert in_worker, "the server passed over what it had half loaded"
    assert hears
    assert collects == [True, True]
    assert in_its_fork == [False, False], "what a worker chose holds for what it forks"


def test_missing_module_is_named():
    for name in ("tourch", "torch.nothing", "nothing.at.all"):
        with pytest.raises(ValueError, match=f"Cannot preload '{name}'"):
            use_start_method(["numpy", name])
