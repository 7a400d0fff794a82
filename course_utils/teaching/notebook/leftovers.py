"""Clear away what an interrupted cell or a kernel leaves: loops over a loader, and workers."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import psutil
from IPython.core.getipython import get_ipython

import keepfed.forks  # noqa: F401  (so that an interrupt during a fork is heard)
from keepfed.words import plural

_HELPERS = ("multiprocessing.forkserver", "multiprocessing.resource_tracker")


def cleanup_workers() -> None:
    """End every worker of every `DataLoader` in this kernel, such as an interrupted cell leaves.

    The traceback of the interrupt holds the frames of the loop, which hold the loader's iterator,
    which holds its workers and the batches they had ready.
    """
    with _workers_may_die():
        processes, loops = _children(), _end_loops()
        _forget_errors()
        for loader in _alive("DataLoader"):
            loader._iterator = None  # persistent workers: the next loop starts new ones
        gc.collect()
        for process in _lost(processes):
            process.kill()
        gone, _ = psutil.wait_procs(processes, timeout=3)
    if not loops and not gone:
        print("Nothing was left over.")
        return
    cleared, several = plural(loops, "unfinished loop"), "es" * (len(gone) != 1)
    print(f"Cleared away: {cleared} over a loader, {len(gone)} worker process{several}.")


def let_workers_begin_anew(result: Any) -> None:
    """Have persistent workers started again where the interrupt of a cell has reached them too.

    Args:
        result: of the cell, as IPython tells it.
    """
    if isinstance(result.error_in_exec, KeyboardInterrupt):
        with _workers_may_die():
            for loader in list(_alive("DataLoader")):
                loader._iterator = None


def end_without_helpers(kernel: Any) -> None:
    """Let `kernel` end at once, with all that it still has to clear away.

    It waits half a minute for children that do not end when they are told to: the helpers of
    multiprocessing, which end after it, and those that have ended and of whom nobody has heard.
    Jupyter kills it before that.
    """
    children = type(kernel)._process_children  # of the class: a notebook may begin twice

    def those_that_listen() -> list[psutil.Process]:
        left = _children()
        return [c for c in children(kernel) if c in left and c.status() != psutil.STATUS_ZOMBIE]

    kernel._process_children = those_that_listen


def _forget_errors() -> None:
    """Let go of the last error, and so of all that its frames hold."""
    for name in ("last_traceback", "last_value", "last_exc", "last_type"):
        with suppress(AttributeError):
            delattr(sys, name)
    if shell := get_ipython():
        shell.InteractiveTB.tb = None
        if shell.last_execution_result:
            shell.last_execution_result.error_in_exec = None


def _end_loops() -> int:
    """End all loops over a loader, also those whose iterator has a name, and return how many.

    Before anything is collected: with what held it, a loop loses its queues first, and torch then
    waits five seconds for each worker to hear of the end.
    """
    found = list(_alive("_MultiProcessingDataLoaderIter"))
    unfinished = [one for one in found if not getattr(one, "_shutdown", True)]
    for iterator in unfinished:
        with suppress(AttributeError):  # it was interrupted before it was whole
            iterator._shutdown_workers()
    return len(unfinished)


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


def _alive(name: str) -> Iterator[Any]:
    """Yield the objects of a class of torch's loader, if anybody imported it."""
    kind = getattr(sys.modules.get("torch.utils.data.dataloader"), name, None)
    # type() and not isinstance(), which asks proxies for their class and may wake them
    return (thing for thing in gc.get_objects() if kind and issubclass(type(thing), kind))


def _children() -> set[psutil.Process]:
    """Return the descendants of this process, without the helpers of multiprocessing itself."""
    found, server = set(), _server_pid()
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            # A forked worker has its server's command line, but not the server's parent.
            is_ours = child.ppid() == os.getpid()
            is_helper = child.pid == server or any(name in _command(child) for name in _HELPERS)
            if not (is_ours and is_helper):
                found.add(child)
    return found


def _server_pid() -> int | None:
    """Return the server that forks workers: an interrupt may have ended it while it began.

    Who else than multiprocessing asked how it ended would take the news from it, which then starts
    no other one.
    """
    module = sys.modules.get("multiprocessing.forkserver")
    return module._forkserver._forkserver_pid if module else None


def _lost(processes: set[psutil.Process]) -> Iterator[psutil.Process]:
    """Yield the workers that nobody knows: an interrupt came while their loop was starting them."""
    known = {process.pid for process in multiprocessing.active_children()}
    ours, own = psutil.Process().children(), _command(psutil.Process())
    servers = {child.pid for child in ours if child not in processes}
    for process in processes:
        if process.pid not in known:
            with suppress(psutil.NoSuchProcess):
                command = _command(process)  # of a forked one, that of its parent
                began = command == own or "multiprocessing.spawn" in command
                if (process in ours and began) or process.ppid() in servers:
                    yield process


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.ZombieProcess:
        return ""  # what an interrupt leaves of a worker


def spare_the_kernel(names: dict[str, Any]) -> None:
    """Keep a worker that dies between two cells from ending the kernel.

    An interrupt reaches the workers too, and one that is just importing torch dies of it, late.
    torch raises an error for a dead worker wherever this process is: in a cell a learner shall see
    it, but between two cells it would end the kernel's own loop.

    Args:
        names: the globals of the cells.
    """
    if not hasattr(signal, "SIGCHLD"):
        return
    from torch.utils.data._utils import signal_handling

    signal_handling._set_SIGCHLD_handler()  # does nothing if torch has set it already
    raises = signal.getsignal(signal.SIGCHLD)
    if not callable(raises) or getattr(raises, "__name__", "") == "in_cells_only":
        return

    def in_cells_only(number: int, frame: FrameType | None) -> None:
        try:
            raises(number, frame)
        except RuntimeError:
            while frame:
                if frame.f_globals is names:
                    raise
                frame = frame.f_back

    signal.signal(signal.SIGCHLD, in_cells_only)
