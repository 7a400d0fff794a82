"""List the files of a source, with marks that show whether a file has changed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from keepfed.checks import files_below, stamp
from keepfed.errors import unreadable
from keepfed.limits import known
from keepfed.reading import reading

_MARKS = ("ETag", "etag", "checksum", "mtime", "LastModified", "last_modified", "created")
_SECRETS = {"key", "secret", "token", "password", "username"}  # do not identify the storage
_CHECK = "Check the network and your credentials, then stage again"


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
        """Choose a name and key, the same in every process. The source may not exist yet."""
        self.path = os.fspath(source)
        if fs is None and ("://" in self.path or "::" in self.path):
            try:
                import fsspec

                fs, self.path = fsspec.url_to_fs(self.path)
            except (ImportError, ValueError) as error:
                raise unreadable(self.path, str(error), "Fix this, or use a local path") from None
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
        self._step = _CHECK if fs else "Then stage again"

    def look(self) -> Files:
        """Return its current files, or raise ReadError if there are none or it cannot be read."""
        with reading(self.identity, step=self._step):
            files = _local_files(self.path) if self.fs is None else self._remote_files()
        if not files:
            raise unreadable(self.identity, "it is empty", "Use the path that contains the data")
        return files

    def open(self, file: SourceFile) -> BinaryIO:
        """Open one of its files for reading."""
        with reading(self.identity, step=self._step):
            opened: BinaryIO = self.fs.open(file.path) if self.fs else open(file.path, "rb")  # noqa: SIM115
        return opened

    def _remote_files(self) -> Files:
        self.fs.invalidate_cache()  # a cached listing would hide changes
        info = self.fs.info(self.path)
        if info["type"] != "directory":
            return {"": _remote_file(info)}
        listed = map(_remote_file, self.fs.find(self.path, detail=True).values())
        files = {file.path.removeprefix(self.path).lstrip("/"): file for file in listed}
        for name in files:
            if ".." in PurePosixPath(name).parts:
                raise unreadable(name, "it is outside of its folder", "Rename it")
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
    paths = files_below(root) if os.path.isdir(root) else [root]
    files = {}
    for path in paths:
        size, modified = stamp(path)
        name = "" if path == root else os.path.relpath(path, root).replace(os.sep, "/")
        files[name] = SourceFile(path, size, str(modified))
    return files


def _remote_file(info: Mapping[str, Any]) -> SourceFile:
    name = str(info["name"])
    if info["type"] != "file" or str(info.get("mimetype")).startswith("text/html"):
        problem = "it is a web page, a device or a link, not a file"
        raise unreadable(name, problem, "Name the file with the data")
    if info.get("size") is None:
        problem = "the storage does not report its size, so a copy cannot be verified"
        raise unreadable(name, problem, "Download it first")
    marks = (str(info[mark]) for mark in _MARKS if info.get(mark) is not None)
    return SourceFile(name, int(info["size"]), next(marks, ""))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:10]
