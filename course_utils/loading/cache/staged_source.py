"""What is to be staged: its files, and the marks that tell whether one of them changed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import fsspec
from fsspec.utils import tokenize

from course_utils.errors import CourseError
from course_utils.hardware.machine import known

_MARKS = (
    "ETag",
    "etag",
    "checksum",
    "md5Hash",
    "mtime",
    "LastModified",
    "last_modified",
    "created",
)
_PAGE = 4096  # bytes
_SECRETS = {"key", "secret", "token", "password", "username"}  # they change, the files do not


@dataclass(frozen=True)
class SourceFile:
    """One file as it was when it was looked at."""

    path: str
    size: int  # bytes
    mark: str  # time of change, or the checksum that the storage keeps


@dataclass(frozen=True)
class Source:
    """A file or a folder, on this machine or on a file system of fsspec.

    Attributes:
        identity: names it, the same in every process.
        name: its own name, without the way to it.
        files: all of them by their path in the folder, with forward slashes; "" if it is a file.
    """

    identity: str
    name: str
    files: Mapping[str, SourceFile]
    _path: str = field(repr=False)
    _fs: Any = field(repr=False)

    @property
    def bytes(self) -> int:
        """The bytes of all files."""
        return sum(file.size for file in self.files.values())

    @property
    def version(self) -> str:
        """Ten characters for names, sizes and marks of all files: others, if one changed."""
        return _digest(repr(sorted((name, f.size, f.mark) for name, f in self.files.items())))

    @property
    def room(self) -> int:
        """The bytes that the files take in memory, where each fills whole pages."""
        return sum(-(-file.size // _PAGE) * _PAGE for file in self.files.values())

    def look_again(self) -> Source:
        """Return the source as it is now."""
        return find_source(self._path, self._fs)

    def open(self, name: str) -> BinaryIO:
        """Open one of the files for reading."""
        path = self.files[name].path
        with _reading(self.identity):
            file: BinaryIO = self._fs.open(path) if self._fs else open(path, "rb")  # noqa: SIM115
        return file


def find_source(source: str | os.PathLike[str], fs: Any = None) -> Source:
    """Look at a source: a path, a URL of fsspec, or a path on the fsspec file system `fs`.

    Raises:
        CourseError: there is no such source, it may not be read, or it is neither file nor folder.
    """
    fs, root, identity = _locate(source, fs)
    with _reading(identity):
        files = _local_files(root) if fs is None else _remote_files(fs, root)
    if not files:
        raise CourseError(f"{identity} is empty; name the file or folder that holds the data.")
    name = PurePosixPath(Path(root).as_posix()).name or "data"
    return Source(identity, name, files, root, fs)


def key_of(source: str | os.PathLike[str], fs: Any = None) -> str:
    """Return ten characters that stand for a source in every process, even if it is not there."""
    return _digest(_locate(source, fs)[2])


def _locate(source: str | os.PathLike[str], fs: Any) -> tuple[Any, str, str]:
    """Return the file system, or None for this machine, the path on it, and the identity."""
    text = os.fspath(source)
    if fs is None and ("://" in text or "::" in text):
        try:
            fs, text = fsspec.url_to_fs(text)
        except (ImportError, ValueError) as error:
            raise CourseError(
                f"{text} cannot be opened: {error}; mend that, or name a path."
            ) from None
    if fs is None:
        path = os.path.abspath(Path(text).expanduser())
        return None, path, path
    root = str(fs._strip_protocol(text)).rstrip("/")
    storage = known(lambda: str(fs.fsid)) or _options(fs)
    return fs, root, f"{fs.unstrip_protocol(root)}" + (f" ({storage})" if storage else "")


def _options(fs: Any) -> str:
    """Stand for the options of a file system that does not name itself."""
    options = {key: value for key, value in fs.storage_options.items() if key not in _SECRETS}
    return str(tokenize(options))[:10] if options else ""


def _local_files(root: str) -> dict[str, SourceFile]:
    if not os.path.isdir(root):
        status = os.stat(root)
        if not os.path.isfile(root):
            raise CourseError(f"{root} is neither a file nor a folder; name one of those.")
        return {"": SourceFile(root, status.st_size, str(status.st_mtime_ns))}
    files = {}
    for folder, inner, names in os.walk(root, followlinks=True, onerror=_refuse):
        above = {Path(folder).resolve(), *Path(folder).resolve().parents}
        inner[:] = [name for name in inner if Path(folder, name).resolve() not in above]
        for name in names:
            path = Path(folder, name)
            if path.is_file():  # no socket, no link to what is gone
                status = path.stat()
                mark = str(status.st_mtime_ns)
                inside = path.relative_to(root).as_posix()
                files[inside] = SourceFile(str(path), status.st_size, mark)
    return files


def _refuse(error: OSError) -> None:
    raise error


def _remote_files(fs: Any, root: str) -> dict[str, SourceFile]:
    fs.invalidate_cache()  # a listing that it remembers would hide a change
    info = fs.info(root)
    if info["type"] != "directory":
        return {"": _remote_file(info)}
    found = [_remote_file(info) for info in fs.find(root, detail=True).values()]
    files = {file.path.removeprefix(root).lstrip("/"): file for file in found}
    if wrong := [name for name in files if ".." in PurePosixPath(name).parts]:
        raise CourseError(f"{wrong[0]} leads out of its folder; rename it, then stage again.")
    return files


def _remote_file(info: Mapping[str, Any]) -> SourceFile:
    if info.get("size") is None:
        raise CourseError(
            f"The storage does not tell the size of {info['name']}, so that a copy could not be "
            "verified; download it first."
        )
    marks = (str(info[mark]) for mark in _MARKS if info.get(mark) is not None)
    return SourceFile(str(info["name"]), int(info["size"]), next(marks, ""))


@contextmanager
def _reading(identity: str) -> Iterator[None]:
    """Say in one sentence that a source is not there, or may not be read."""
    try:
        yield
    except FileNotFoundError:
        raise CourseError(f"There is no {identity}; look at the path and name it again.") from None
    except PermissionError:
        raise CourseError(
            f"Reading {identity} is not allowed; ask its owner, or name a copy of your own."
        ) from None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:10]
