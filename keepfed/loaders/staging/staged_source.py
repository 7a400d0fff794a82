"""List the files of a source, with marks that show whether a file has changed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from keepfed.errors import KeepfedError
from keepfed.limits import known

_MARKS = ("ETag", "etag", "checksum", "mtime", "LastModified", "last_modified", "created")
_SECRETS = {"key", "secret", "token", "password", "username"}  # do not identify the storage


@dataclass(frozen=True)
class SourceFile:
    """One file of a source, when it was listed."""

    path: str
    size: int  # bytes
    mark: str  # modification time, or a checksum stored by the storage system


Files = dict[str, SourceFile]  # by path in the folder, with forward slashes; "" for a single file


class Source:
    """A file or folder: a local path, an fsspec URL, or a path on the fsspec file system `fs`."""

    def __init__(self, source: str | os.PathLike[str], fs: Any = None):
        """Choose a name and key that are the same in every process. The source may not exist yet.

        Raises:
            KeepfedError: If fsspec does not support the URL.
        """
        self.path = os.fspath(source)
        if fs is None and ("://" in self.path or "::" in self.path):
            try:
                import fsspec

                fs, self.path = fsspec.url_to_fs(self.path)
            except (ImportError, ValueError) as error:
                raise KeepfedError(
                    f"{self.path} cannot be opened: {error}. Fix this, or use a local path."
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
        """Return its current files.

        Raises:
            KeepfedError: If the source does not exist, cannot be read, or has no files.
        """
        look = _local_files if self.fs is None else partial(_remote_files, self.fs)
        with self._reading():
            files = look(self.path)
        if not files:
            raise KeepfedError(
                f"{self.identity} is empty. Use the file or folder that contains the data."
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
            raise KeepfedError(f"{at} does not exist. Check the path, then stage again.") from None
        except PermissionError:
            raise KeepfedError(
                f"Reading {at} is not allowed. Ask its owner for permission, or use another copy."
            ) from None
        except Exception as error:
            if self.fs is None or isinstance(error, KeepfedError):
                raise
            # each storage has its own exceptions, for example S3 without credentials
            raise KeepfedError(
                f"{at} cannot be read ({type(error).__name__}: {error}). Check the network and "
                "your credentials for this storage, then stage again."
            ) from error


def version(files: Files) -> str:
    """Return ten characters that change if the name, size or mark of any file changes."""
    return _digest(repr(sorted((name, file.size, file.mark) for name, file in files.items())))


def _options(fs: Any) -> str:
    """Return ten characters that identify a file system without an ID by its options."""
    from fsspec.utils import tokenize

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
            if path.is_symlink() and not path.exists():
                raise KeepfedError(
                    f"{path} is a link to a missing file. Restore the file or remove the link, "
                    "then stage again."
                )
            if path.is_file():  # not a socket
                files[path.relative_to(root).as_posix()] = _local_file(str(path))
    return files


def _local_file(path: str) -> SourceFile:
    status = os.stat(path)
    return SourceFile(path, status.st_size, str(status.st_mtime_ns))


def _refuse(error: OSError) -> None:
    raise error


def _remote_files(fs: Any, root: str) -> Files:
    fs.invalidate_cache()  # a cached listing would hide changes
    info = fs.info(root)
    if info["type"] != "directory":
        return {"": _remote_file(info)}
    found = [_remote_file(info) for info in fs.find(root, detail=True).values()]
    files = {file.path.removeprefix(root).lstrip("/"): file for file in found}
    if wrong := [name for name in files if ".." in PurePosixPath(name).parts]:
        raise KeepfedError(f"{wrong[0]} is outside of its folder. Rename it, then stage again.")
    return files


def _remote_file(info: Mapping[str, Any]) -> SourceFile:
    if info.get("size") is None:
        raise KeepfedError(
            f"The storage does not report the size of {info['name']}, so a copy cannot be "
            "verified. Download the file first."
        )
    marks = (str(info[mark]) for mark in _MARKS if info.get(mark) is not None)
    return SourceFile(str(info["name"]), int(info["size"]), next(marks, ""))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:10]
