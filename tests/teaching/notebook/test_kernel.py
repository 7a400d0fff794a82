"""The magic and the cleanup in a real kernel, with each start method of workers."""

import multiprocessing
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.notebooks.kernel import Kernel, Result, running_kernel

pytestmark = pytest.mark.slow

BEGIN = """
import course_utils as cu
from course_utils.teaching.notebook import start
start.data_path = lambda name: None
cu.ready("90")
"""

DATASET = """%%worker_module my_dataset
import os, threading
from torch.utils.data import Dataset

class Numbers(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        if {} < index and not os.path.exists("no_more_waiting"):
            threading.Event().wait(60)
        return index + {}
"""

LOAD = """
from torch.utils.data import DataLoader
print("loaded", next(iter(DataLoader(Numbers(), batch_size=4, num_workers=1, timeout=60))).tolist())
"""


METHODS = multiprocessing.get_all_start_methods()
FULL = os.environ.get("COURSE_TEST_MATRIX") == "full"


@pytest.fixture(scope="module", params=METHODS if FULL else METHODS[:1])
def start_method(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def kernel(start_method: str, folder: Path) -> Iterator[Kernel]:
    """Return one kernel for all tests in this file, in their order."""
    with running_kernel(folder, COURSE_START_METHOD=start_method, MPLBACKEND="Agg") as kernel:
        kernel.run(BEGIN)
        yield kernel


def test_workers_see_every_edit_and_errors_are_one_sentence(kernel: Kernel) -> None:
    for i in range(3):
        kernel.run(DATASET.format(4, i))
        assert kernel.run(LOAD) == f"loaded {[i, i + 1, i + 2, i + 3]}\n"
    (line,) = kernel.result("%%worker_module mine\n\nx = np.zeros(3)").outputs[-1]["traceback"]
    assert line.startswith("The cell stopped in line 3 in mine.py, `x = np.zeros(3)`: Name")
    # for any MPLBACKEND
    shown = kernel.result("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()").outputs
    assert any("image/png" in out.get("data", {}) for out in shown)


COUNT = """
from course_utils.teaching.notebook.cleanup import _children
print("children", len(_children()))
"""


# Prints "waiting" once the loop is inside the loader. An interrupt between two calls of the loop's
# own body would leave nothing, because nothing else refers to the loader's iterator.
LOOP = """
import sys, threading, time

def watch(loop=threading.main_thread().ident):
    inside = False
    while not inside:
        time.sleep(0.01)
        both, frame = len(seen) == 2, sys._current_frames()[loop]  # in this order
        while frame:
            inside = inside or (both and frame.f_code.co_name == "_try_get_data")
            frame = frame.f_back
    print("waiting", flush=True)

seen = []
threading.Thread(target=watch, daemon=True).start()
for batch in loader:
    seen.append(batch.item())
    print("batch", batch.item(), flush=True)
"""


def interrupted_loop(kernel: Kernel, folder: Path) -> Result:
    """Interrupt a loop over persistent workers, and let the next one run to its end."""
    (folder / "no_more_waiting").unlink(missing_ok=True)
    kernel.run(DATASET.format(1, 0))
    kernel.run("import torch.utils.data as data")
    kernel.run("loader = data.DataLoader(Numbers(), num_workers=2, persistent_workers=True)")
    interrupted = kernel.interrupt(LOOP, at="waiting")
    (folder / "no_more_waiting").touch()
    return interrupted


def test_cleanup_ends_the_workers_of_an_interrupted_loop(kernel: Kernel, folder: Path) -> None:
    interrupted = interrupted_loop(kernel, folder)
    assert interrupted.text == "batch 0\nbatch 1\nwaiting\nKeyboardInterrupt"
    assert interrupted.outputs[-1]["traceback"] == [
        "KeyboardInterrupt: you interrupted line 15 in the cell, `for batch in loader:`. To end "
        "the workers of its loop, run cu.cleanup_workers()."
    ]
    cleared = kernel.run("cu.cleanup_workers()")
    assert cleared.startswith("Cleaned up 1 unfinished loop over a loader")
    assert kernel.run(COUNT) == "children 0\n"
    assert kernel.run("print(len(list(loader)))").endswith("4\n")


def test_persistent_workers_restart_after_an_interrupt(kernel: Kernel, folder: Path) -> None:
    assert interrupted_loop(kernel, folder).error == "KeyboardInterrupt"
    assert kernel.run("print(len(list(loader)))").endswith("4\n")


STARTS = """
from torch.utils.data import DataLoader
next(batches := iter(DataLoader(Numbers(), num_workers=1)))
print(batches._workers[0].pid)
"""

DIES_IN_A_CELL = """
import os, signal, threading
os.kill(batches._workers[0].pid, signal.SIGKILL)
threading.Event().wait(10)
"""


def test_dead_worker_raises_only_during_a_cell(kernel: Kernel, start_method: str) -> None:
    kernel.run(DATASET.format(4, 1))
    worker = psutil.Process(int(kernel.run(STARTS)))
    worker.kill()
    with suppress(psutil.NoSuchProcess):
        while worker.status() != psutil.STATUS_ZOMBIE:
            pass
    assert kernel.run("print('alive')") == "alive\n"
    if start_method != "forkserver":  # its workers are not children of the kernel
        # Python may receive the signal of the first death only now; then the cell raises its error.
        assert any(kernel.run(STARTS).strip().isdigit() for _ in range(3))
        assert kernel.run(DIES_IN_A_CELL) == "RuntimeError"


FINALIZES = """
import threading

class Thing:
    def __del__(self):
        print("waiting", flush=True)
        threading.Event().wait(0.3)

Thing()
threading.Event().wait(60)
print("over")
"""


def test_interrupt_in_a_finalizer_is_raised_after_it(kernel: Kernel) -> None:
    shown = kernel.interrupt(FINALIZES, at="waiting").text
    assert shown.split() == ["waiting", "KeyboardInterrupt"]


def test_interrupt_at_the_end_of_a_cell_does_not_reach_the_next(kernel: Kernel) -> None:
    ends = FINALIZES.replace("threading.Event().wait(60)\n", "")
    assert kernel.interrupt(ends, at="waiting").text == "waiting\nover\n"
    assert kernel.run("import time; time.sleep(0.1); print('not reached')") == "not reached\n"


def test_ending_kernel_removes_its_folders(kernel: Kernel) -> None:
    kernel.run(DATASET.format(4, 0))
    kernel.run(LOAD)
    made = kernel.run("import tempfile; room = tempfile.TemporaryDirectory(); room.name")
    room = Path(made[1:-1])
    assert room.is_dir()
    kernel.manager.shutdown_wait_time = 25  # s until Jupyter kills it; it used to take longer
    kernel.manager.shutdown_kernel()
    assert not room.exists()
