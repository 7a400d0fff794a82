"""Drop files from the page cache, so that the next read comes from the disk."""

from __future__ import annotations

import os
from pathlib import Path

from keepfed.formatting import plural


def drop_cache(path: str | Path) -> str:
    """Drop a file, or every file in a folder, from the page cache; needs no special rights.

    Unwritten data are written to disk first, because only clean pages can be dropped.

    Returns:
        A sentence: "Cold", or "Warm" on systems without this call (macOS, Windows).

    Raises:
        FileNotFoundError: If `path` does not exist.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist. Pass an existing file or folder.")
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    what = f"{plural(len(files), 'file')}, {sum(f.stat().st_size for f in files) / 1e6:,.1f} MB"
    if not hasattr(os, "posix_fadvise"):
        return (
            f"Warm: {what} still in memory, because this system cannot drop files from the cache. "
            "Label the figure 'warm', or first read more data than the memory holds."
        )
    for file in files:
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return f"Cold: {what} dropped from the page cache."
