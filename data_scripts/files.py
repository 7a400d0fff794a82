"""Create a folder of data atomically, and verify it later.

A folder is built under a temporary name next to its final path. It gets checksums and, last of all,
a manifest, and is then renamed. A killed run does not change the final path. The next run cleans
up.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from keepfed.errors import ReadError
from keepfed.files import replace_file, require_free_space
from keepfed.reading import read_json, reading

MANIFEST = "manifest.json"
CHECKSUMS = "SHA256SUMS"
_SMALLER = "choose a smaller --size, or choose another folder with COURSE_DATA"

Facts = Mapping[str, Any]


def make_folder(folder: Path, build: Callable[[Path], Facts], *, facts: Facts, room: int) -> None:
    """Let `build` fill an empty folder, then replace `folder` by it.

    Args:
        folder: Final path of the data. Existing data are replaced.
        build: Function that writes into the given path and returns facts for the manifest.
        facts: Entries of the manifest.
        room: Free disk space required, in bytes.
    """
    unfinished, former = _beside(folder, "unfinished"), _beside(folder, "former")
    require_free_space(folder.parent, room, otherwise=_SMALLER)
    unfinished.mkdir()
    try:
        seal(unfinished, {**facts, **build(unfinished)})
        if folder.exists():
            folder.rename(former)
        unfinished.rename(folder)
    finally:
        sweep(folder)


def add_entry(folder: Path, name: str, write: Callable[[Path], None], *, room: int) -> None:
    """Let `write` create one more file or folder in `folder`, then seal the folder again."""
    unfinished = _beside(folder / name, "unfinished")
    _remove(unfinished)
    _remove(folder / name)  # left by a run that was killed before sealing
    require_free_space(folder, room, otherwise=_SMALLER)
    try:
        write(unfinished)
        unfinished.rename(folder / name)
    finally:
        _remove(unfinished)
    seal(folder, read_manifest(folder) or {})


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock `folder` for writing. The system releases the lock if the holder is killed.

    Data of another user, which only that user can write, are not locked.
    """
    if folder.exists() and not os.access(folder.parent, os.W_OK):
        yield
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(_beside(folder, "lock"))
    try:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            print(f"Another process is creating {folder}. Waiting for it.", flush=True)
            lock.acquire()
        sweep(folder)
        yield
    finally:  # including after an interrupt; releasing an unlocked file does nothing
        lock.release()


def sweep(folder: Path) -> None:
    """Remove the leftovers of a failed or killed run; restore the data that it moved aside."""
    former = _beside(folder, "former")
    if former.exists() and not folder.exists():
        former.rename(folder)
    _remove(former)
    _remove(_beside(folder, "unfinished"))
    for leftover in (*folder.glob(".*.unfinished"), *folder.glob(".*.part")):
        _remove(leftover)


def seal(folder: Path, facts: Facts) -> None:
    """Write the checksums of all files, then the manifest that marks the folder as complete."""
    lines = [f"{_sha256(folder / name)}  {name}\n" for name in _file_names(folder)]
    replace_file(folder / CHECKSUMS, "".join(lines))
    entries = sorted(path for path in folder.iterdir() if path.name not in (MANIFEST, CHECKSUMS))
    sizes = {path.name: _bytes_below(path) for path in entries}
    manifest = {**facts, "bytes": sum(sizes.values()), "sizes": sizes}
    replace_file(folder / MANIFEST, json.dumps(manifest, indent=2) + "\n")


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """Return the manifest of `folder`, or None if it is missing or unreadable."""
    with suppress(ReadError), reading(folder / MANIFEST):
        manifest: dict[str, Any] = read_json(folder / MANIFEST)
        if manifest.keys() > {"data", "size", "seed", "bytes"}:
            return {**manifest, "sizes": {**manifest["sizes"]}}
    return None


def sizes_match(folder: Path, manifest: Facts) -> bool:
    """Return whether every entry of the manifest exists with the right size (a quick check)."""
    return all(size_matches(folder, manifest, name) for name in manifest["sizes"])


def size_matches(folder: Path, manifest: Facts, name: str) -> bool:
    """Return whether one file or folder is in the manifest, and exists with the right size."""
    path = folder / name
    return path.exists() and _bytes_below(path) == manifest["sizes"].get(name)


def corrupted(folder: Path) -> list[str]:
    """Return the names of missing and changed files; reads every file."""
    if not (folder / CHECKSUMS).is_file():
        return [CHECKSUMS]
    lines = (folder / CHECKSUMS).read_text("utf-8", "replace").splitlines()
    sealed = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    return [
        name
        for name in sorted(filter(None, sealed)) or [CHECKSUMS]
        if not (folder / name).is_file() or _sha256(folder / name) != sealed.get(name)
    ]


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _file_names(folder: Path) -> list[str]:
    files = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted({path.as_posix() for path in files} - {MANIFEST, CHECKSUMS})


def _bytes_below(path: Path) -> int:
    files = [path] if path.is_file() else path.rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file())


def _beside(folder: Path, what: str) -> Path:
    return folder.with_name(f".{folder.name}.{what}")
