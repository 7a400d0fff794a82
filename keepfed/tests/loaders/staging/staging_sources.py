"""Sources of data that do something while they are staged, and processes that stage."""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fsspec.implementations.local import LocalFileSystem

from keepfed.errors import KeepfedError
from keepfed.loaders.staging import stage_to_shm
from keepfed.loaders.staging.stage import find_staging_dir

CHANGES = {f"os.{call}" for call in ("mkdir", "rename", "remove", "rmdir", "chmod", "truncate")}
CHANGES |= {"fcntl.flock"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Meddling(LocalFileSystem):
    """Local files; `meddle(path)` is called whenever one of them is opened."""

    cachable = False

    def __init__(self, meddle: Callable[[str], None]):
        super().__init__()
        self.meddle = meddle

    def open(self, path: str, *args: Any, **kwargs: Any) -> Any:
        self.meddle(path)
        return super().open(path, *args, **kwargs)


def contents(path: Path) -> dict[str, bytes]:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in files}


def left(to: Path) -> list[str]:
    """Name what is in a place, but for the locks."""
    return sorted(path.name for path in find_staging_dir(to).iterdir() if path.suffix != ".lock")


def start(target: Callable[..., Any], *arguments: Any) -> Any:
    """Start a process that has everything imported already."""
    process = multiprocessing.get_context("fork").Process(target=target, args=arguments)
    process.start()
    return process


def stage(source: Path, to: Path, results: Any, as_nobody: bool = False) -> None:
    """Stage in a process of its own; tell what is used, and whether it was there, or an error."""
    if as_nobody and os.geteuid() == 0:  # root may do everything
        os.setuid(65534)
    try:
        staged = stage_to_shm(source, to=to, progress=False)
        results.put((str(staged.path), staged.reused))
    except KeepfedError as error:
        results.put(str(error))


def stage_and_die(source: Path, to: Path, step: int) -> None:
    """Stage, and be killed when the system is asked for the step-th time to change something."""
    seen = 0

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if event in CHANGES or (event == "open" and arguments[2] & WRITING):
            seen += 1
            if seen == step:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    stage_to_shm(source, to=to, progress=False)
    os._exit(0)
