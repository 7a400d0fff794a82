"""Clean up after interrupted cells and kernels: unfinished loops over a loader, and workers."""

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

import keepfed.forks  # noqa: F401  (makes interrupts during a fork work)
from course_utils.teaching.notebook.learners_code import learner_line
from keepfed.formatting import plural

_HELPERS = ("multiprocessing.forkserver", "multiprocessing.resource_tracker")


def cleanup_workers() -> None:
    """End every worker of every `DataLoader` in this kernel, for example after an interrupt.

    The traceback of the interrupt refers to the frames of the loop. They refer to the loader's
    iterator, which keeps its workers and their batches alive.
    """
    with _workers_may_die():
        processes, loops = _children(), _end_loops()
        _forget_errors()
        for loader in _alive("DataLoader"):
            loader._iterator = None  # the next loop starts new persistent workers
        gc.collect()
        for process in _lost(processes):
            process.kill()
        gone, _ = psutil.wait_procs(processes, timeout=3)
    if not loops and not gone:
        print("Nothing to clean up.")
        return
    cleared, several = plural(loops, "unfinished loop"), "es" * (len(gone) != 1)
    print(f"Cleaned up {cleared} over a loader and {len(gone)} worker process{several}.")


def shorten_interrupts(shell: Any) -> None:
    """Show an interrupt in one sentence, without the frames of torch and multiprocessing."""

    def show(shell: Any, kind: type, error: BaseException, frames: Any, tb_offset: Any) -> None:
        sentence = f"KeyboardInterrupt: you interrupted {learner_line(error) or 'the cell'}."
        if any(_unfinished_loops()):
            sentence += " To end the workers of its loop, run cu.cleanup_workers()."
        shell._showtraceback(kind, error, [sentence])

    shell.set_custom_exc((KeyboardInterrupt,), show)


def restart_workers_after_interrupt(result: Any) -> None:
    """Restart persistent workers in the next loop after an interrupt, which also reached them.

    Args:
        result: Result of the cell, from IPython.
    """
    if isinstance(result.error_in_exec, KeyboardInterrupt):
        with _workers_may_die():
            for loader in list(_alive("DataLoader")):
                loader._iterator = None


def shutdown_without_children(kernel: Any) -> None:
    """Let `kernel` shut down immediately, including all cleanup.

    By default it waits half a minute for children that ignore its signal: the helper processes of
    multiprocessing, which end after the kernel, and zombies. Jupyter kills the kernel before that.
    """
    children = type(kernel)._process_children  # from the class, because `ready` may be called twice

    def those_that_listen() -> list[psutil.Process]:
        left = _children()
        return [c for c in children(kernel) if c in left and c.status() != psutil.STATUS_ZOMBIE]

    kernel._process_children = those_that_listen


def _forget_errors() -> None:
    """Forget the last error, because its frames keep objects alive."""
    for name in ("last_traceback", "last_value", "last_exc", "last_type"):
        with suppress(AttributeError):
            delattr(sys, name)
    if shell := get_ipython():
        shell.InteractiveTB.tb = None
        if shell.last_execution_result:
            shell.last_execution_result.error_in_exec = None


def _end_loops() -> int:
    """End all unfinished loops over a loader, including named iterators, and return their number.

    Do this before collecting garbage. A loop that is collected loses its queues first, and torch
    then waits five seconds for each worker.
    """
    unfinished = list(_unfinished_loops())
    for iterator in unfinished:
        with suppress(AttributeError):  # interrupted before it was fully initialized
            iterator._shutdown_workers()
    return len(unfinished)


def _unfinished_loops() -> Iterator[Any]:
    """Yield the iterators of all loops over a loader whose workers were not shut down."""
    iterators = list(_alive("_MultiProcessingDataLoaderIter"))
    return (iterator for iterator in iterators if not getattr(iterator, "_shutdown", True))


@contextmanager
def _workers_may_die() -> Iterator[None]:
    """Keep torch from raising an error in this process for a worker that ends late."""
    if not hasattr(signal, "SIGCHLD") or threading.current_thread() != threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, previous or signal.SIG_DFL)


def _alive(name: str) -> Iterator[Any]:
    """Yield all objects of a class of `torch.utils.data.dataloader`, if it was imported."""
    kind = getattr(sys.modules.get("torch.utils.data.dataloader"), name, None)
    # Use type(), because isinstance() asks proxies for their class, which may load them.
    return (thing for thing in gc.get_objects() if kind and issubclass(type(thing), kind))


def _children() -> set[psutil.Process]:
    """Return the descendants of this process, without multiprocessing's helper processes."""
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
    """Return the PID of the forkserver, which an interrupt may have killed while it started.

    Only multiprocessing may wait for its exit status. If other code does, multiprocessing does not
    notice that the server has ended, and starts no new one.
    """
    module = sys.modules.get("multiprocessing.forkserver")
    return module._forkserver._forkserver_pid if module else None


def _lost(processes: set[psutil.Process]) -> Iterator[psutil.Process]:
    """Yield orphaned workers, whose loop was interrupted while it was starting them."""
    known = {process.pid for process in multiprocessing.active_children()}
    ours, own = psutil.Process().children(), _command(psutil.Process())
    servers = {child.pid for child in ours if child not in processes}
    for process in processes:
        if process.pid not in known:
            with suppress(psutil.NoSuchProcess):
                command = _command(process)  # a forked process has the command of its parent
                began = command == own or "multiprocessing.spawn" in command
                if (process in ours and began) or process.ppid() in servers:
                    yield process


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.ZombieProcess:
        return ""  # an interrupted worker can be a zombie


def ignore_worker_sigchld(names: dict[str, Any]) -> None:
    """Keep a worker that dies between two cells from ending the kernel.

    An interrupt also reaches the workers, and a worker that is importing torch dies from it later.
    torch raises an error for a dead worker wherever this process is. In a cell the learner should
    see this error, but between two cells it would end the kernel's event loop.

    Args:
        names: Global variables of the cells.
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
