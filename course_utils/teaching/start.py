"""Begin a notebook, choose how workers start, and clear away what an interrupted cell left."""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import course_utils
from course_utils.hardware.machine_facts import memory, usable_cores
from course_utils.loading.preload import use_start_method
from course_utils.paths import data_path, size
from course_utils.teaching.worker_module import register

# What every worker imports: loaded once into the server that forks them, it costs no worker time.
PRELOAD = (
    "torch",
    "numpy",
    "course_utils.loading.datasets",
    "course_utils.loading.streams",
    "course_utils.measure.traced_loader",
    "course_utils.teaching.clinic_loops",
    "course_utils.teaching.run_pipeline",
)

_DATA = {"00": ("events",), "03": ("events",)}  # the others need the images too

# Each is right, and none of them is news on a machine that emulates its GPU and sweeps its workers.
_QUIET = (
    "This DataLoader will create .* worker processes in total",
    "'pin_memory' argument is set as true but no accelerator is found",
    "This process .* is multi-threaded, use of fork",
)


def ready(notebook: str) -> None:
    """Make a fresh kernel ready for notebook `notebook`, such as "01"; the first cell calls it."""
    from IPython.core.getipython import get_ipython

    method = start_workers()  # first: its server loads torch while this process does the same
    for message in _QUIET:
        warnings.filterwarnings("ignore", message=message)
    if shell := get_ipython():
        register(shell, notebook)
        # where MPLBACKEND is set to Agg, as on many clusters, pictures would not be shown
        os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch.profiler complains where no GPU is
    if note := _version_note(notebook, Path.cwd()):
        print(note)
    for name in _DATA.get(notebook, ("events", "images")):
        data_path(name)
    _seed()
    print(_machine(method))


def start_workers() -> str:
    """Make this kernel start workers as the course does, and return how."""
    return use_start_method(PRELOAD)


@dataclass(frozen=True)
class Cleanup:
    """What `cleanup_workers` cleared away."""

    loops: int  # over a DataLoader with workers, that had not come to their end
    processes: int

    def __repr__(self) -> str:
        """Say it in words."""
        if not self.loops and not self.processes:
            return "Nothing was left over."
        return (
            f"Cleared away: {self.loops} unfinished loop{'s' * (self.loops != 1)} over a loader, "
            f"{self.processes} worker process{'es' * (self.processes != 1)}."
        )


def cleanup_workers() -> Cleanup:
    """End every worker of every `DataLoader` in this kernel, such as an interrupted cell leaves.

    The traceback of the interrupt holds the frames of the loop, which hold the loader's iterator,
    which holds its workers and the batches they had ready.
    """
    with _workers_may_die():
        processes, loops = _children(), sum(1 for _ in _iterators())
        for name in ("last_traceback", "last_value", "last_exc", "last_type"):
            with suppress(AttributeError):
                delattr(sys, name)
        for loader in _alive("DataLoader"):
            loader._iterator = None  # persistent workers: the next loop starts new ones
        gc.collect()
        for iterator in _iterators():
            iterator._shutdown_workers()  # the learner's own name for it keeps this one alive
        gone, _ = psutil.wait_procs(processes, timeout=3)
    return Cleanup(loops, len(gone))


@contextmanager
def _workers_may_die() -> Iterator[None]:
    """Keep torch from raising an error, wherever this process is, for a worker that ends late."""
    if not hasattr(signal, "SIGCHLD") or threading.current_thread() != threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, previous or signal.SIG_DFL)


def _iterators() -> Iterator[Any]:
    """Yield what holds workers: the iterators over a `DataLoader` that are not shut down yet."""
    return (it for it in _alive("_MultiProcessingDataLoaderIter") if not it._shutdown)


def _alive(name: str) -> Iterator[Any]:
    """Yield the objects of a class of torch's loader, if anybody imported it."""
    kind = getattr(sys.modules.get("torch.utils.data.dataloader"), name, None)
    # type() and not isinstance(), which asks proxies for their class and may wake them
    return (thing for thing in gc.get_objects() if kind and issubclass(type(thing), kind))


def _children() -> set[psutil.Process]:
    """Return the descendants of this process, without the helpers of multiprocessing itself."""
    found = set()
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            # A forked worker has its server's command line, but not the server's parent.
            is_ours = child.ppid() == os.getpid()
            if not (is_ours and any(helper in _command(child) for helper in _HELPERS)):
                found.add(child)
    return found


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.ZombieProcess:
        return ""  # what an interrupt leaves of a worker


_HELPERS = ("multiprocessing.forkserver", "multiprocessing.resource_tracker")


def _version_note(notebook: str, folder: Path) -> str:
    """Tell if the notebook in `folder` was made for another version of the course."""
    for path in sorted(folder.glob(f"{notebook}_*.ipynb")):
        with suppress(OSError, ValueError, KeyError, TypeError):
            made_for = json.loads(path.read_text("utf-8"))["metadata"]["course"]["version"]
            if made_for != course_utils.__version__:
                return (
                    f"{path.name} is of course version {made_for}, installed is "
                    f"{course_utils.__version__}; for the new one beside it run "
                    f"`course lab --fresh {notebook}`."
                )
    return ""


def _seed() -> None:
    import torch

    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)  # as in a worker, so that loading costs the same in both


def _machine(method: str) -> str:
    from course_utils.hardware.accelerator import get_accelerator

    return (
        f"Ready: {usable_cores()} cores, {memory() / 1e9:.0f} GB of memory, data of size {size()}, "
        f"workers start by {method}.\nAccelerator: {get_accelerator()}"
    )
