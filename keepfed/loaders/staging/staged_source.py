"""What is to be staged: its files, and the marks that tell whether one of them changed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import fsspec
from fsspec.utils import tokenize

from keepfed.errors import KeepfedError
from keepfed.limits import known

_MARKS = ("ETag", "etag", "checksum", "mtime", "LastModified", "last_modified", "created")
_SECRETS = {"key", "secret", "token", "password", "username"}  # they change, the files do not


@dataclass(frozen=True)
class SourceFile:
    """One file as it was when it was looked at."""

    path: str
    size: int  # bytes
    mark: str  # time of change, or the checksum that the storage keeps


Files = dict[str, SourceFile]  # by path in the folder, with forward slashes; "" for a single file


class Source:
    """A file or a folder: a path, a URL of fsspec, or a path on the fsspec file system `fs`."""

    def __init__(self, source: str | os.PathLike[str], fs: Any = None):
        """Name it, the same in every process, even if it is not there.

        Raises:
            KeepfedError: fsspec knows no such URL.
        """
        self.path = os.fspath(source)
        if fs is None and ("://" in self.path or "::" in self.path):
            try:
                fs, self.path = fsspec.url_to_fs(self.path)
            except (ImportError, ValueError) as error:
                raise KeepfedError(
                    f"{self.path} cannot be opened: {error}; mend that, or name a path."
                ) from None
        self.fs = fs
        if fs is None:
            self.identity = self.path = os.path.abspath(Path(self.path).expanduser())
        else:
            self.path = str(fs._strip_protocol(self.path)).rstrip("/")
            storage = known(lambda: str(fs.fsid)) or _options(fs)
            self.identity = fs.unstrip_protocol(self.path) + (f" ({storage})" if storage else "")
        self.name = Path(self.path).name or "data"
        self.key = _digest(self.identity)

    def look(self) -> Files:
        """Return its files as they are now.

        Raises:
            KeepfedError: it is not there, may not be read, or holds no file.
        """
        look = _local_files if self.fs is None else partial(_remote_files, self.fs)
        with self._reading():
            files = look(self.path)
        if not files:
            raise KeepfedError(
                f"{self.identity} is empty; name the file or folder that holds the data."
            )
        return files

    def open(self, file: SourceFile) -> BinaryIO:
        """Open one of its files for reading."""
        with self._reading():
            opened: BinaryIO = self.fs.open(file.path) if self.fs else open(file.path, "rb")  # noqa: SIM115
        return opened

    @contextmanager
    def _reading(self) -> Iterator[None]:
        at = self.identity
        try:
            yield
        except FileNotFoundError:
            raise KeepfedError(f"There is no {at}; look at the path and name it again.") from None
        except PermissionError:
            raise KeepfedError(
                f"Reading {at} is not allowed; ask its owner, or name a copy of your own."
            ) from None
        except Exception as error:
            if self.fs is None or isinstance(error, KeepfedError):
                raise
            # every storage has exceptions of its own, such as those of S3 without credentials
            raise KeepfedError(
                f"{at} cannot be read ({type(error).__name__}: {error}); look at the network "
                "and at your credentials for this storage, then stage it again."
            ) from error


def version(files: Files) -> str:
    """Return ten characters for names, sizes and marks of all files: others, if one changed."""
    return _digest(repr(sorted((name, file.size, file.mark) for name, file in files.items())))


def _options(fs: Any) -> str:
    """Stand for the options of a file system that does not name itself."""
    options = {key: value for key, value in fs.storage_options.items() if key not in _SECRETS}
    return str(tokenize(options))[:10] if options else ""


def _local_files(root: str) -> Files:
    if not os.path.isdir(root):
        return {"": _local_file(root)}
    files = {}
    for folder, inner, names in os.walk(root, followlinks=True, onerror=_refuse):
        above = {Path(folder).resolve(), *Path(folder).resolve().parents}
        inner[:] = [name for name in inner if Path(folder, name).resolve() not in above]
        for path in (Path(folder, name) for name in names):
            if path.is_file():  # no socket, no link to what is gone
                files[path.relative_to(root).as_posix()] = _local_file(str(path))
    return files


def _local_file(path: str) -> SourceFile:
    status = os.stat(path)
    return SourceFile(path, status.st_size, str(status.st_mtime_ns))


def _refuse(error: OSError) -> None:
    raise error


def _remote_files(fs: Any, root: str) -> Files:
    fs.invalidate_cache()  # a listing that it remembers would hide a change
    info = fs.info(root)
    if info["type"] != "directory":
        return {"": _remote_file(info)}
    found = [_remote_file(info) for info in fs.find(root, detail=True).values()]
    files = {file.path.removeprefix(root).lstrip("/"): file for file in found}
    if wrong := [name for name in files if ".." in PurePosixPath(name).parts]:
        raise KeepfedError(f"{wrong[0]} leads out of its folder; rename it, then stage again.")
    return files


def _remote_file(info: Mapping[str, Any]) -> SourceFile:
    if info.get("size") is None:
        raise KeepfedError(
            f"The storage does not tell the size of {info['name']}, so that a copy could not be "
            "verified; download it first."
        )
    marks = (str(info[mark]) for mark in _MARKS if info.get(mark) is not None)
    return SourceFile(str(info["name"]), int(info["size"]), next(marks, ""))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:10]
