"""Make one staged copy atomically, and remove it.

A copy is built in a folder with a temporary name, together with its seal, and then renamed. A
folder with its final name is therefore complete. If a process is killed, the next process that
acquires the lock deletes the temporary folder.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from filelock import FileLock, Timeout

from keepfed.checks import stamp
from keepfed.errors import KeepfedError
from keepfed.files import progress_bar
from keepfed.formatting import size
from keepfed.loaders.staging.staged_source import Files, Source, SourceFile

QUIET_S = 0.5  # seconds to wait for the lock before a message is printed
_SEAL = ".seal.json"  # next to the file or folder with the data
_UNFINISHED = ".unfinished"  # name of a copy while it is made or removed
_PIECE = 4 * 1024 * 1024  # bytes copied at a time


@dataclass(frozen=True)
class Staged:
    """A complete copy of a file or a folder. It stays until `unstage` removes it."""

    path: Path  # of the copied file or folder
    source: str
    bytes: int
    files: Mapping[str, list[int]]  # size and modification time of each file of the copy
    seconds: float | None = None  # that the copy took, or None if it existed

    @property
    def reused(self) -> bool:
        """Whether the copy existed."""
        return self.seconds is None

    @property
    def is_untouched(self) -> bool:
        """Whether all files have the sizes and modification times of the copy when it was made."""
        try:
            return all([*stamp(self.path / name)] == sealed for name, sealed in self.files.items())
        except OSError:
            return False

    def unstage(self) -> None:
        """Remove the copy. A job may go on reading the files that it has open, but no others."""
        with locked(self.path.parent.parent):
            remove(self.path.parent)

    def __str__(self) -> str:
        """Return path, size, and how the copy was made, in one line."""
        how = "an existing copy" if self.reused else f"copied in {self.seconds:.1f} s"
        return f"{self.path}: {size(self.bytes)}, {how} of {self.source}"


def find_copy(folder: Path, *, intact: bool = False) -> Staged | None:
    """Return the copy in a folder, or None if it is not complete, or not `intact` as asked."""
    try:
        copy = _read_seal(folder)
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return copy if copy.is_untouched or not intact else None


def _read_seal(folder: Path) -> Staged:
    seal = json.loads((folder / _SEAL).read_text(encoding="utf-8"))
    return Staged(folder / seal["name"], seal["source"], int(seal["bytes"]), seal["files"])


@contextmanager
def locked(place: Path) -> Iterator[None]:
    """Hold the lock of all copies in a folder, and delete what a killed process left.

    The lock is required to make and remove copies. The system releases it when the process ends.
    If another process holds it, a message says after a moment why nothing happens.
    """
    lock = FileLock(place / "copies.lock")
    try:
        lock.acquire(timeout=QUIET_S)
    except Timeout:
        print("Waiting for another process that stages data.", flush=True)
        lock.acquire()
    try:
        _delete(place / _UNFINISHED)
        yield
    finally:
        lock.release()


def make(folder: Path, source: Source, files: Files, *, progress: bool) -> Staged:
    """Copy all files of a source, or none if it changes. The caller must hold the lock."""
    start = time.perf_counter()
    if source.name == _SEAL:
        raise KeepfedError(
            f"Staging uses the name {source.name} itself. Rename {source.identity}, or stage "
            "the folder that contains it."
        )
    unfinished = folder.with_name(_UNFINISHED)
    unfinished.mkdir(mode=0o700)
    try:
        _fill(unfinished, source, files, progress=progress)
        if source.look() != files:
            raise _changed(source)
        unfinished.rename(folder)
    finally:
        _delete(unfinished)
    return replace(_read_seal(folder), seconds=time.perf_counter() - start)


def remove(folder: Path) -> None:
    """Remove a copy, if it exists. The caller must hold the lock."""
    if folder.exists():
        # atomic, so no incomplete copy has its final name
        _delete(folder.rename(folder.with_name(_UNFINISHED)))


def _fill(folder: Path, source: Source, files: Files, *, progress: bool) -> None:
    """Copy all files into an empty folder, and write the seal."""
    total = sum(file.size for file in files.values())
    targets = {name: folder / source.name / name for name in files}  # top / "" is top
    with progress_bar(f"staging {source.name}", total, "B", show=progress) as count:
        for name, file in files.items():
            _copy(source, file, targets[name], count)
    stamps = {name: stamp(target) for name, target in targets.items()}
    seal = {"source": source.identity, "name": source.name, "bytes": total, "files": stamps}
    (folder / _SEAL).write_text(json.dumps(seal), encoding="utf-8")


def _copy(source: Source, file: SourceFile, target: Path, count: Callable[[int], object]) -> None:
    """Copy one file, which must be as long as when it was listed."""
    copied, buffer = 0, memoryview(bytearray(_PIECE))
    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open(file) as original, target.open("xb") as copy:
        # a file that has become longer may never end
        while copied <= file.size and (length := original.readinto(buffer)):  # type: ignore[attr-defined]
            copy.write(buffer[:length])
            copied += length
            count(length)
    if copied != file.size:
        raise _changed(source)


def _changed(source: Source) -> KeepfedError:
    return KeepfedError(
        f"{source.identity} changed during the copy, and the copy was removed. Stage it again when "
        "no program writes to it."
    )


def _delete(path: Path) -> None:
    if path.exists():
        shutil.rmtree(path)
