import json
import sys
from pathlib import Path

import pytest

from tests.fixtures import run_python

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
import gc, json, multiprocessing, os, signal, sys, time, warnings
from multiprocessing import forkserver
from pathlib import Path
from course_utils.hardware.machine import use_start_method

folder = Path(__file__).parent
PRELOAD = ["course_utils.hardware.machine.server", "slow"]

def loaded():
    return sorted({"torch", "slow"} & set(sys.modules))

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
    method = use_start_method(PRELOAD)
    while not (folder / "begun").exists():
        time.sleep(0.01)
    os.kill(forkserver._forkserver._forkserver_pid, signal.SIGINT)
    (folder / "interrupted").touch()
    use_start_method(PRELOAD)  # again, as when a cell runs twice
    with multiprocessing.Pool(1) as pool:
        found = [pool.apply(task) for task in (loaded, hears, collects, collects_in_its_fork)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        use_start_method([*PRELOAD, "json"])
    print(json.dumps([method, *found, *(str(warning.message) for warning in caught)]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no forkserver there")
@pytest.mark.slow
def test_server_loads_modules_survives_interrupts_and_leaves_garbage_alone(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "program.py").write_text(INTERRUPTED)
    run = run_python("-W", "error", tmp_path / "program.py", check=True)
    method, in_worker, hears, collects, in_its_fork, warning = json.loads(run.stdout)
    assert (method, in_worker) == ("forkserver", ["slow"]), "the server keeps what it loaded"
    assert hears
    assert collects == [True, True]
    assert in_its_fork == [False, False], "what a worker chose holds for what it forks"
    assert warning.startswith("Cannot preload json, because the server that starts workers is al")
    assert "Restart Python" in warning
