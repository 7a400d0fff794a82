"""Stage data: copy them to /dev/shm once, completely or not at all, for all jobs that share it.

    staged = stage_to_shm("/lustre/events-M")
    events = MemmapEvents(staged.path)
    ...
    staged.unstage()

Reading a copy in /dev/shm is as fast as reading a file from a warm page cache, but the system never
evicts the copy. It can only move it to swap, if the machine has any. The copy costs memory, and it
leaves less of /dev/shm for the batches of workers. On some systems, /dev/shm is private to a job or
a container, or it is emptied at logout.
"""

from __future__ import annotations

import getpass
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Any

from keepfed.errors import KeepfedError
from keepfed.files import writing
from keepfed.formatting import size
from keepfed.limits import SHM, known, memory, memory_free
from keepfed.loaders.staging.staged_copy import Staged, find_copy, locked, make, remove
from keepfed.loaders.staging.staged_source import Files, Source, version

_PAGE = 4096  # bytes, because a file in memory occupies complete pages
_MOST_KEPT = 1_000_000_000  # bytes kept free on a large disk, where a tenth would be too much
_ELSEWHERE = "choose another folder with to=... (--to in a terminal)"
Location = str | os.PathLike[str]


def stage_to_shm(
    source: Location, *, fs: Any = None, to: Location | None = None, progress: bool = True
) -> Staged:
    """Copy a file or a folder to /dev/shm, or use the existing copy.

    The copy is reused as long as the sizes and modification times of the source are the same. If
    several processes stage, one copies and the others wait. Only the current user can read the
    copy. It stays until it is removed, and so do the copies of older versions of the source, which
    a job may still use. A tenth of the memory must stay free for batches; on a disk, a tenth or
    1 GB.

    Args:
        source: A path, an fsspec URL such as "s3://bucket/shards", or a path on `fs`.
        fs: fsspec file system to read from. None for the local machine or the one of the URL.
        to: Folder for copies instead of /dev/shm, such as a local NVMe. Without /dev/shm (macOS,
            Windows), the default is the temporary folder.
        progress: Whether to show a progress bar.

    Raises:
        KeepfedError: If the source does not exist or cannot be read, the target cannot be written
            or has too little space, or the source changes during the copy.
    """
    wanted = Source(source, fs)
    files = wanted.look()  # before a folder is made
    folder = _folder(to).resolve()
    is_folder = wanted.fs is None and "" not in files
    if is_folder and folder.is_relative_to(Path(wanted.path).resolve()):
        raise KeepfedError(
            f"{folder} is inside {wanted.path}, so the copy would contain itself. To fix this, "
            f"{_ELSEWHERE}."
        )
    place = find_staging_dir(to)
    if to is None and not _is_in_memory(place):
        print(f"This system has no /dev/shm, so the copy is stored on disk, in {place}.")
    target = place / f"{wanted.key}-{version(files)}"
    if copy := find_copy(target, intact=True):  # does not wait while other data are copied
        return copy
    with writing(place.parent, elsewhere=_ELSEWHERE), locked(place):
        if copy := find_copy(target, intact=True):
            return copy
        remove(target)
        _require_free_space(place, wanted.name, files)
        return make(target, wanted, files, progress=progress)


def staged_copies(source: Location | None = None, *, to: Location | None = None) -> list[Staged]:
    """Return the copies of a source, or all copies. Printing one shows its size and source."""
    key = "*" if source is None else Source(source).key
    folders = sorted(find_staging_dir(to).glob(f"{key}-*"))
    return [copy for copy in map(find_copy, folders) if copy]


def _is_in_memory(place: Path) -> bool:
    return SHM in place.resolve().parents


def _require_free_space(place: Path, name: str, files: Files) -> None:
    """Raise KeepfedError unless the files fit into the folder, and if it is in memory, there."""
    needed = sum(-(-file.size // _PAGE) * _PAGE for file in files.values())
    space, in_memory = shutil.disk_usage(place), _is_in_memory(place)
    kept = space.total // 10 if in_memory else min(space.total // 10, _MOST_KEPT)
    limits = [(str(place.parent), space.free, kept)]
    if in_memory and (free_memory := known(memory_free)) is not None:
        limits.append(("the memory of this machine or container", free_memory, memory() // 10))
    for where, free, kept in limits:
        if free - kept < needed:
            raise KeepfedError(
                f"{name} needs {size(needed)}, but {where} has {size(free)} free, and "
                f"{size(kept)} must stay free. Remove a copy (`keepfed stage --list`), stage "
                f"less, or {_ELSEWHERE}."
            )


def find_staging_dir(to: Location | None = None) -> Path:
    """Return the folder for copies, or raise KeepfedError if it belongs to somebody else."""
    folder = _folder(to)
    with writing(folder.parent, elsewhere=_ELSEWHERE):
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        # every user may write to /dev/shm, so another user could have created this folder or link
        is_own = not hasattr(os, "getuid") or status.st_uid == os.getuid()
        if not stat.S_ISDIR(status.st_mode) or not is_own:
            raise KeepfedError(f"{folder} belongs to another user. To fix this, {_ELSEWHERE}.")
        folder.chmod(0o700)
    return folder


def _folder(to: Location | None) -> Path:
    if to is not None and "://" in os.fspath(to):
        raise KeepfedError(f"{to} is not on this machine. To fix this, {_ELSEWHERE}.")
    usual = SHM if SHM.is_dir() else Path(tempfile.gettempdir())
    root = usual if to is None else Path(to).expanduser().absolute()
    return root / f"keepfed-{os.getuid() if hasattr(os, 'getuid') else getpass.getuser()}"
