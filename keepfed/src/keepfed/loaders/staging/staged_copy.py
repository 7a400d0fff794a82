"""Create one staged copy atomically, track its users, and remove it.

A copy is built in a folder with a temporary name, together with its seal, and then renamed. A
folder with its final name is therefore complete. If a process is killed, the next process that
acquires the lock deletes the temporary folder.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import weakref
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keepfed.errors import KeepfedError
from keepfed.formatting import size
from keepfed.loaders.staging.staged_source import Files, Source, SourceFile

try:
    import fcntl
except ImportError:  # Windows, which refuses to delete a file that is open
    fcntl = None  # type: ignore[assignment]

_SEAL, _KEPT = ".seal.json", ".kept"  # next to the file or folder with the data
_PIECE = 4 * 1024 * 1024  # bytes copied at a time


@dataclass(frozen=True)
class StagedCopy:
    """One copy and its seal, which lists its source and its files."""

    folder: Path

    @property
    def key(self) -> str:
        """The key of the source."""
        return self.folder.name.partition("-")[0]

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
            return all(_stamp(top / name) == sealed for name, sealed in files)
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

    @property
    def is_kept(self) -> bool:
        """Whether the copy stays after its last user has released it."""
        return (self.folder / _KEPT).exists()

    def __str__(self) -> str:
        """Return path, size, state and source in one line."""
        seal = self.seal
        used = "in use" if self.in_use else "not in use"
        return f"{self.path}: {size(seal['bytes'])}, {used}, copied from {seal['source']}"

    def make(self, source: Source, files: Files, *, progress: bool) -> None:
        """Copy all files of a source, or none. The caller must hold the lock of the source.

        Raises:
            KeepfedError: If the source changes during the copy, or only staging may use its name.
        """
        if source.name in (_SEAL, _KEPT):
            raise KeepfedError(
                f"Staging uses the name {source.name} itself. Rename {source.identity}, or stage "
                "the folder that contains it."
            )
        building = unfinished(self.folder.parent, self.key)
        building.mkdir(mode=0o700)
        try:
            _fill(building, source, files, progress=progress)
            if source.look() != files:
                raise _changed(source)
            building.rename(self.folder)
        finally:
            delete(building)

    def keep(self) -> None:
        """Keep the copy after its last user has released it."""
        (self.folder / _KEPT).touch()

    def remove(self) -> bool:
        """Remove the copy unless it is in use. The caller must hold the lock.

        Returns:
            Whether the copy was removed.
        """
        (self.folder / _KEPT).unlink(missing_ok=True)
        doomed = unfinished(self.folder.parent, self.key)
        delete(doomed)
        if self.in_use:
            return False
        try:
            self.folder.rename(doomed)  # atomic, so no incomplete copy has its final name
        except PermissionError:  # on Windows, because it is in use
            return False
        except FileNotFoundError:
            return True
        delete(doomed)
        return True


class CopyLease:
    """Protection of a copy against removal, as long as this object and its process live."""

    def __init__(self, copy: StagedCopy):
        """Protect a copy. The caller must hold the lock of its source."""
        self._handle = os.open(copy.folder / _SEAL, os.O_RDONLY)
        if fcntl:
            fcntl.flock(self._handle, fcntl.LOCK_SH)
        self._close = weakref.finalize(self, os.close, self._handle)

    def end(self) -> None:
        """Release the copy, including for workers that were forked in the meantime."""
        if self._close.alive and fcntl:
            fcntl.flock(self._handle, fcntl.LOCK_UN)
        self._close()


def _bar(title: str, total: int, *, progress: bool) -> Any:
    """Return a progress bar, which is None in its block if tqdm is not installed.

    It has no thread, and no lock that forked processes share.
    """
    try:
        from tqdm import tqdm
    except ModuleNotFoundError:
        return nullcontext()
    kind: Any = type("Bar", (tqdm,), {"monitor_interval": 0})
    kind.set_lock(threading.RLock())
    hidden = None if progress else True  # None hides the bar if stderr is not a terminal
    return kind(total=total, desc=title, unit="B", unit_scale=True, disable=hidden)


def _fill(folder: Path, source: Source, files: Files, *, progress: bool) -> None:
    """Copy all files into an empty folder, and write the seal."""
    total = sum(file.size for file in files.values())
    targets = {name: folder / source.name / name for name in files}  # top / "" is top
    with _bar(f"staging {source.name}", total, progress=progress) as bar:
        for name, file in files.items():
            _copy(source, file, targets[name], bar)
    stamps = {name: _stamp(target) for name, target in targets.items()}
    seal = {"source": source.identity, "name": source.name, "bytes": total, "files": stamps}
    (folder / _SEAL).write_text(json.dumps(seal), encoding="utf-8")


def _copy(source: Source, file: SourceFile, target: Path, bar: Any) -> None:
    """Copy one file, which must be as long as when it was listed."""
    size, buffer = 0, memoryview(bytearray(_PIECE))
    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open(file) as original, target.open("xb") as copy:
        while count := original.readinto(buffer):  # type: ignore[attr-defined]
            copy.write(buffer[:count])
            size += count
            if bar is not None:
                bar.update(count)
            if size > file.size:
                break  # it may never end
    if size != file.size:
        raise _changed(source)


def _changed(source: Source) -> KeepfedError:
    return KeepfedError(
        f"{source.identity} changed during the copy, and the copy was removed. Stage it again when "
        "no program writes to it."
    )


def unfinished(place: Path, key: str) -> Path:
    """Return the temporary folder in which the copy of a source is created and deleted."""
    return place / f".{key}.unfinished"


def delete(path: Path) -> None:
    """Delete a folder if it exists."""
    if path.exists():
        shutil.rmtree(path)


def _stamp(path: Path) -> list[int]:
    """Return size and modification time of a file."""
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]
