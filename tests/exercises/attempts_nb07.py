"""Answers to the staging exercise of notebook 07, right and wrong, importable by processes."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from filelock import FileLock


def _same(source: Path, target: Path) -> bool:
    if not target.exists():
        return False
    old, new = target.stat(), source.stat()
    return (old.st_size, old.st_mtime_ns) == (new.st_size, new.st_mtime_ns)


def _copy(source: Path, target: Path) -> None:
    half = target.with_name(target.name + ".part")
    try:
        shutil.copy2(source, half)
        os.replace(half, target)
    except BaseException:
        half.unlink(missing_ok=True)
        raise


def by_hand(source: str, place: str) -> str:
    """Right, in small pieces and without filelock's help on the name."""
    target = Path(place) / "staged" / Path(source).name
    target = Path(place) / target.name
    with FileLock(Path(place) / ".lock"):
        if not _same(Path(source), target):
            half = Path(place) / "unfinished"
            try:
                with open(source, "rb") as old, open(half, "wb") as new:
                    while piece := old.read(4096):
                        new.write(piece)
                status = os.stat(source)
                os.utime(half, ns=(status.st_atime_ns, status.st_mtime_ns))
                half.replace(target)
            except OSError:
                half.unlink(missing_ok=True)
                raise
    return str(target)


def as_in_the_lecture(source: str, place: str) -> str:
    target = Path(place, Path(source).name)
    if not target.exists():
        shutil.copy(source, target)
    return str(target)


def by_shell(source: str, place: str) -> str:
    os.system(f"cp {source} {place}")
    return os.path.join(place, os.path.basename(source))


def unchecked_program(source: str, place: str) -> str:
    target = Path(place, Path(source).name)
    if not target.exists():
        subprocess.run(["cp", source, str(target)])
    return str(target)


def link(source: str, place: str) -> str:
    target = Path(place, Path(source).name)
    if not target.exists():
        target.symlink_to(source)
    return str(target)


def elsewhere(source: str, place: str) -> str:
    return source


def always_copies(source: str, place: str) -> str:
    target = Path(place, Path(source).name)
    with FileLock(f"{target}.lock"):
        _copy(Path(source), target)
    return str(target)


def compares_checksums(source: str, place: str) -> str:
    target = Path(place, Path(source).name)
    with FileLock(f"{target}.lock"):
        sums = [
            hashlib.sha256(p.read_bytes()).digest() for p in (Path(source), target) if p.exists()
        ]
        if len(set(sums)) != 1 or len(sums) != 2:
            _copy(Path(source), target)
    return str(target)


def compares_sizes_only(source: str, place: str) -> str:
    target = Path(place, Path(source).name)
    with FileLock(f"{target}.lock"):
        if not target.exists() or target.stat().st_size != os.path.getsize(source):
            _copy(Path(source), target)
    return str(target)


def like_make(source: str, place: str) -> str:
    target = Path(place, Path(source).name)
    with FileLock(f"{target}.lock"):
        if not target.exists() or target.stat().st_mtime < os.path.getmtime(source):
            _copy(Path(source), target)
    return str(target)


def forgets_the_time(source: str, place: str) -> str:
    """Compares times, and gives the copy the time of the copying."""
    target = Path(place, Path(source).name)
    with FileLock(f"{target}.lock"):
        if not _same(Path(source), target):
            half = Path(place, "unfinished")
            shutil.copyfile(source, half)
            half.replace(target)
    return str(target)


def under_the_final_name(source: str, place: str) -> str:
    target = Path(place, Path(source).name)
    with FileLock(f"{target}.lock"):
        if not _same(Path(source), target):
            try:
                shutil.copy2(source, target)
            except OSError:
                target.unlink(missing_ok=True)
                raise
    return str(target)


def a_name_for_each(source: str, place: str) -> str:
    target = Path(place, Path(source).name)
    with FileLock(f"{target}.lock"):
        if not _same(Path(source), target):
            handle, half = tempfile.mkstemp(dir=place)
            os.close(handle)
            try:
                shutil.copy2(source, half)
                os.replace(half, target)
            except OSError:
                os.unlink(half)
                raise
    return str(target)


def leaves_the_half(source: str, place: str) -> str:
    target = Path(place, Path(source).name)
    with FileLock(f"{target}.lock"):
        if not _same(Path(source), target):
            half = Path(place, "unfinished")
            shutil.copy2(source, half)
            os.replace(half, target)
    return str(target)


def swallows(source: str, place: str) -> str:
    target = Path(place, Path(source).name)
    with FileLock(f"{target}.lock"):
        try:
            if not _same(Path(source), target):
                _copy(Path(source), target)
        except OSError:
            print("the disk is full")
    return str(target)


def no_lock(source: str, place: str) -> str:
    target = Path(place, Path(source).name)
    if not _same(Path(source), target):
        _copy(Path(source), target)
    return str(target)


def lock_after_looking(source: str, place: str) -> str:
    target = Path(place, Path(source).name)
    if not _same(Path(source), target):
        with FileLock(f"{target}.lock"):
            _copy(Path(source), target)
    return str(target)


def lock_file_of_its_own(source: str, place: str) -> str:
    """A lock file that a killed process leaves behind."""
    target = Path(place, Path(source).name)
    lock = Path(f"{target}.lock")
    while True:
        try:
            lock.touch(exist_ok=False)
            break
        except FileExistsError:
            pass
    if not _same(Path(source), target):
        _copy(Path(source), target)
    lock.unlink()
    return str(target)


def stops(source: str, place: str) -> str:
    raise ValueError("no such thing")


def leaves_the_process(source: str, place: str) -> str:
    os._exit(0)
