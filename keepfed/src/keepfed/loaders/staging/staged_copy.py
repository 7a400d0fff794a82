"""Create one staged copy atomically, track its users, and remove it.

A copy is built in a folder with a temporary name, together with its seal, and then renamed. A
folder with its final name is therefore complete. If a process is killed, the next process that
acquires the lock deletes the temporary folder.
"""

from __future__ import annotations

import json
import os
import shutil
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from keepfed.checks import stamp
from keepfed.errors import KeepfedError
from keepfed.files import progress_bar
from keepfed.formatting import size
from keepfed.loaders.staging.staged_source import Files, Source, SourceFile

try:
    import fcntl
except ImportError:  # Windows, which refuses to delete a file that is open
    fcntl = None  # type: ignore[assignment]

QUIET_S = 0.5  # seconds to wait for a lock before a message is printed
_SEAL, _KEPT = ".seal.json", ".kept"  # next to the file or folder with the data
_PIECE = 4 * 1024 * 1024  # bytes copied at a time


class StagedCopy:
    """One copy and its seal, which lists its source and its files."""

    def __init__(self, folder: Path):
        """Name the folder of a copy, which need not exist."""
        self.folder, self.key = folder, folder.name.partition("-")[0]
        self.unfinished = folder.with_name(f".{self.key}.unfinished")  # while a copy is made
        self.kept = folder / _KEPT  # exists if the copy stays after its last user

    @property
    def seal(self) -> dict[str, Any]:
        """Source, name, bytes and files (size, modification time), or {} if incomplete."""
        try:
            seal = json.loads((self.folder / _SEAL).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return seal if isinstance(seal, dict) else {}

    @property
    def path(self) -> Path:
        """The path of the copied file or folder."""
        return self.folder / str(self.seal["name"])

    @property
    def is_untouched(self) -> bool:
        """Whether all files have the sizes and modification times listed in the seal."""
        try:
            top, files = self.path, self.seal["files"].items()
            return all([*stamp(top / name)] == sealed for name, sealed in files)
        except (KeyError, OSError):
            return False

    @property
    def in_use(self) -> bool:
        """Whether a process uses the copy. On Windows always False, but removing it fails."""
        try:
            with (self.folder / _SEAL).open("r+b") as file:
                if fcntl is not None:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, FileNotFoundError) as error:
            return isinstance(error, BlockingIOError)
        return False

    def __str__(self) -> str:
        """Return path, size, state and source in one line."""
        seal, used = self.seal, "in use" if self.in_use else "not in use"
        return f"{self.path}: {size(seal['bytes'])}, {used}, copied from {seal['source']}"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the source, and delete what a killed process left of its copy.

        The lock is required to make and remove copies. The system releases it when the process
        ends. If another process holds it, a message says after a moment why nothing happens.
        """
        # If an interrupt skips the release, a notebook may keep the frame with the lock in its
        # traceback. The next call gets the same lock, and releases it.
        lock = FileLock(self.folder.with_name(f".{self.key}.lock"), is_singleton=True)
        try:
            try:
                lock.acquire(timeout=QUIET_S)
            except Timeout:
                print("Waiting for another process that stages the same data.", flush=True)
                lock.acquire()
            _delete(self.unfinished)
            yield
        finally:
            lock.release(force=True)

    def make(self, source: Source, files: Files, *, progress: bool) -> None:
        """Copy all files of a source, or none if it changes. The caller must hold the lock."""
        if source.name in (_SEAL, _KEPT):
            raise KeepfedError(
                f"Staging uses the name {source.name} itself. Rename {source.identity}, or stage "
                "the folder that contains it."
            )
        self.unfinished.mkdir(mode=0o700)
        try:
            _fill(self.unfinished, source, files, progress=progress)
            if source.look() != files:
                raise _changed(source)
            self.unfinished.rename(self.folder)
        finally:
            _delete(self.unfinished)

    def remove(self) -> bool:
        """Remove the copy unless it is in use, and return whether it is gone.

        The caller must hold the lock.
        """
        self.kept.unlink(missing_ok=True)
        _delete(self.unfinished)
        if self.in_use:
            return False
        try:
            self.folder.rename(self.unfinished)  # atomic, so no incomplete copy has its final name
        except (PermissionError, FileNotFoundError) as error:  # on Windows, because it is in use
            return isinstance(error, FileNotFoundError)
        _delete(self.unfinished)
        return True


class Staged(StagedCopy):
    """A copy that this process uses. It cannot be removed before this process releases it.

    At the end of a `with` block the copy is removed, or released if other processes use it. The
    last of them then removes it.
    """

    def __init__(self, folder: Path, *, reused: bool):
        """Protect a copy as long as this object and its process live.

        The caller must hold the lock. `reused` says whether it is an existing copy.
        """
        super().__init__(folder)
        self.reused, self.bytes, self.seconds = reused, int(self.seal["bytes"]), 0.0
        self._handle = os.open(folder / _SEAL, os.O_RDONLY)
        if fcntl:
            fcntl.flock(self._handle, fcntl.LOCK_SH)
        self._close = weakref.finalize(self, os.close, self._handle)

    def unstage(self) -> bool:
        """Remove the copy unless another process uses it, and return whether it was removed."""
        with self.locked():
            self._release()
            return self.remove()

    def keep(self) -> None:
        """Keep the copy until `unstage` removes it, even after the last `with` block."""
        self.kept.touch()
        self._release()

    def _release(self) -> None:
        """Release the copy, including for workers that were forked in the meantime."""
        if self._close.alive and fcntl:
            fcntl.flock(self._handle, fcntl.LOCK_UN)
        self._close()

    def __enter__(self) -> Staged:
        return self

    def __exit__(self, *error: object) -> None:
        if self.kept.exists():
            self._release()
        else:
            self.unstage()

    def __repr__(self) -> str:
        """Return path, size and time of the copy."""
        how = "an existing copy" if self.reused else f"copied in {self.seconds:.1f} s"
        return f"Staged {self.path}: {size(self.bytes)}, {how}"


def sweep(place: Path) -> None:
    """Delete what killed processes left. Copies in progress are protected by their locks."""
    for path in place.glob(".*.unfinished"):
        lock = FileLock(path.with_suffix(".lock"), is_singleton=True)
        with suppress(Timeout), lock.acquire(timeout=0):
            _delete(path)


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
