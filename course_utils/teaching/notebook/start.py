"""Prepare a notebook: start method of workers, data, random seeds, and a line about the machine."""

from __future__ import annotations

import os
import random
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

import numpy as np

from course_utils.errors import CourseError
from course_utils.hardware.machine import memory, usable_cores, use_start_method
from course_utils.paths import data_root, data_size
from course_utils.teaching.notebook.cleanup import (
    ignore_worker_sigchld,
    restart_workers_after_interrupt,
    shorten_interrupts,
    shutdown_without_children,
)
from course_utils.teaching.notebook.failed_cells import watch_cells
from course_utils.teaching.notebook.wall import announce, connect, send_verdict
from course_utils.teaching.notebook.worker_module import register
from keepfed.forks import reraise_lost_interrupts

# Modules that every worker imports. The server that forks workers loads them once for all.
PRELOAD = (
    "course_utils.hardware.machine.server",
    "torch",
    "numpy",
    "h5py",  # imported by the events on their first read from HDF5
    "pyarrow.parquet",
    "course_utils.loading.events",
    "course_utils.loading.shards",
    "keepfed.loaders.stream",
    "keepfed.measure.hook",
    "course_utils.teaching.explorer",
)

DATA_SETS = ("events", "images", "volumes", "tokens", "collisions")
_READS = {
    "00": ("events",),
    "03": ("events",),
    "06": ("events", "images", "volumes"),
    "07": ("events",),
    "08": ("images",),
    "09": (),
    "11": ("events",),
    "12": ("tokens",),
    "13": ("events",),
    "14": ("collisions",),
    "B": ("events",),
}  # all other notebooks need events and images

# Correct warnings that do not apply: this GPU is emulated, and leftover workers are cleaned up.
_QUIET = (
    "This DataLoader will create .* worker processes in total",
    "'pin_memory' argument is set as true but no accelerator is found",
    "This process .* is multi-threaded, use of fork",
)


def ready(notebook: str, *, wall: str | None = None) -> None:
    """Prepare a new kernel for a notebook; its first cell calls this.

    Args:
        notebook: Number of the notebook, such as "01".
        wall: Address of the wall of your class, with its token. All your notebooks then send it
            your guesses and check results. "" leaves it. By default, the last choice counts.
    """
    from IPython.core.getipython import get_ipython

    # first, so that its server loads torch at the same time as this process
    method, shell = start_workers(), get_ipython()
    if shell and "torch" not in sys.modules:
        print("Loading PyTorch ...", flush=True)
        import_module("torch")
        shell.display_pub.clear_output(wait=True)  # type: ignore[no-untyped-call]
    connect(notebook, wall)
    for message in _QUIET:
        warnings.filterwarnings("ignore", message=message)
    if shell:
        register(shell, notebook)
        watch_cells(shell)
        shell.events.register("post_run_cell", send_verdict)
        ignore_worker_sigchld(shell.user_global_ns)
        reraise_lost_interrupts(lambda: shell.execution_count)
        shell.events.register("post_run_cell", restart_workers_after_interrupt)
        shorten_interrupts(shell)
        if hasattr(kernel := getattr(shell, "kernel", None), "_process_children"):
            shutdown_without_children(kernel)
        # On clusters, MPLBACKEND is often Agg, which would not show pictures.
        os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # silences torch.profiler without a GPU
    for name in _READS.get(notebook, ("events", "images")):
        data_path(name)
    _seed()
    print(_machine(method))
    announce()


def start_workers() -> str:
    """Set the course's start method of workers in this kernel, and return it."""
    return use_start_method(PRELOAD)


def data_path(name: str, size: str | None = None) -> Path:
    """Return the folder of a data set, and create it first if it does not exist.

    Raises:
        CourseError: If the data set is unknown, or could not be created.
    """
    folder = data_root() / f"{name}-{data_size(size)}"
    is_there = name in DATA_SETS and name not in missing_data(size)
    if not is_there and make_data(name, size) != 0:
        raise CourseError(
            f"Could not create the {name}. Fix the problem shown above, then run `course data`."
        )
    return folder


def missing_data(size: str | None = None) -> list[str]:
    """Return the names of the data sets that do not exist."""
    size = data_size(size)
    # The manifest is written last, so its presence means that the data set is complete.
    paths = {name: data_root() / f"{name}-{size}" / "manifest.json" for name in DATA_SETS}
    return [name for name, path in paths.items() if not path.is_file()]


def make_data(name: str, size: str | None = None) -> int:
    """Create a data set or check it, print the result, and return an exit code."""
    if name not in DATA_SETS:
        raise CourseError(f"There is no data set {name!r}. Choose one of {', '.join(DATA_SETS)}.")
    # only this script: Colab lacks packages of the others
    make: Callable[[Sequence[str]], int] = import_module(f"data_scripts.make_{name}").main
    size = data_size(size)
    return make(["--size", size, "--out", str(data_root() / f"{name}-{size}")])


def _seed() -> None:
    import torch

    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)  # as in a worker, so that loading takes the same time in both


def _machine(method: str) -> str:
    from course_utils.hardware.gpu import get_accelerator

    return (
        f"Ready: {usable_cores()} cores, {memory() / 1e9:.0f} GB of memory, data of size "
        f"{data_size()}, workers start with {method}.\nAccelerator: {get_accelerator()}"
    )
