"""List the files of a source, with marks that show whether a file has changed."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from keepfed.errors import KeepfedError, sentence
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
        if type(fs).__name__ == "LocalFileSystem":  # fsspec need not be installed
            fs, self.path = None, fs._strip_protocol(self.path)
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
        with self._reading():
            files = _local_files(self.path) if self.fs is None else self._remote_files()
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
        """Turn errors of the storage into readable ones."""
        at, silent = self.identity, "" if self.fs is None else ", or its server does not answer"
        try:
            yield
        except KeepfedError:
            raise
        except FileNotFoundError:
            problem = f"{at} does not exist{silent}. Check the path, then stage again."
            raise KeepfedError(problem) from None
        except PermissionError:
            raise KeepfedError(
                f"Reading {at} is not allowed. Ask its owner for permission, or use another copy."
            ) from None
        except Exception as error:  # each storage has its own, for example S3 without credentials
            if self.fs is None and isinstance(error, OSError):
                raise KeepfedError(sentence(error)) from error
            raise KeepfedError(
                f"{at} cannot be read ({type(error).__name__}: {error}). Check the network and "
                "your credentials for this storage, then stage again."
            ) from error

    def _remote_files(self) -> Files:
        self.fs.invalidate_cache()  # a cached listing would hide changes
        info = self.fs.info(self.path)
        if info["type"] != "directory":
            return {"": _remote_file(info)}
        found = map(_remote_file, self.fs.find(self.path, detail=True).values())
        files = {file.path.removeprefix(self.path).lstrip("/"): file for file in found}
        if wrong := [name for name in files if ".." in PurePosixPath(name).parts]:
            raise KeepfedError(f"{wrong[0]} is outside of its folder. Rename it, then stage again.")
        return files


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
    return {
        os.path.relpath(path, root).replace(os.sep, "/"): _local_file(path)
        for path in _paths_below(root, ())
    }


def _paths_below(folder: str, above: tuple[str, ...]) -> Iterator[str]:
    """Yield the paths of all files below a folder. `above` has the real paths of those above it."""
    real = os.path.join(os.path.realpath(folder), "")
    if any(path.startswith(real) for path in above):
        raise KeepfedError(
            f"{folder} is a link to a folder that contains it. Remove the link, then stage again."
        )
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _paths_below(entry.path, (*above, real))
            else:
                yield entry.path


def _local_file(path: str) -> SourceFile:
    if os.path.islink(path) and not os.path.exists(path):
        raise KeepfedError(
            f"{path} is a link to a missing file. Restore the file or remove the link, then stage "
            "again."
        )
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise KeepfedError(
            f"{path} is a device, a pipe or a socket, so it has no content to copy. Remove it, or "
            "use another path."
        )
    return SourceFile(path, status.st_size, str(status.st_mtime_ns))


def _remote_file(info: Mapping[str, Any]) -> SourceFile:
    if info["type"] != "file" or str(info.get("mimetype")).startswith("text/html"):
        raise KeepfedError(
            f"{info['name']} is a web page, a device or a link, not a file. Name the file with the "
            "data."
        )
    if info.get("size") is None:
        raise KeepfedError(
            f"The storage does not report the size of {info['name']}, so a copy cannot be "
            "verified. Download the file first."
        )
    marks = (str(info[mark]) for mark in _MARKS if info.get(mark) is not None)
    return SourceFile(str(info["name"]), int(info["size"]), next(marks, ""))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:10]
