"""The tables of loaders that appendix B measures."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from course_utils.stories.peers.libraries import ALL
from course_utils.stories.peers.peer import Peer, Peers, numbered
from keepfed.formatting import size


@dataclass(frozen=True)
class Table:
    """Loaders to compare, and their data."""

    what: str
    peers: Peers
    count: int
    one_by_one: int  # number of samples for loaders with a high cost per sample
    batch_size: int
    make: Callable[[Path, int], Any]  # (common folder, number) -> samples
    sample_bytes: int = 0  # 0: sizes differ

    @property
    def title(self) -> str:
        """Description of the data."""
        return f"{self.count:,} {self.what}, batches of {self.batch_size:,}"

    def cut(self, count: int) -> Table:
        """Return the same table with fewer samples."""
        batch_size, one_by_one = min(self.batch_size, count // 4), min(self.one_by_one, count)
        return replace(self, count=count, one_by_one=one_by_one, batch_size=batch_size)

    def samples(self, peer: Peer) -> int:
        """Return the number of samples that a peer loads."""
        return self.one_by_one if peer.one_by_one else self.count

    def written(self, peer: Peer, folder: Path) -> Path:
        """Return the files of a peer. Peers with the same format share them."""
        place = folder / f"{peer.write.__name__}-{self.samples(peer)}"
        if not place.exists():
            unfinished = folder / f"unfinished-{os.getpid()}"
            unfinished.mkdir()
            peer.write(unfinished, self.make(folder, self.samples(peer)))
            unfinished.rename(place)
        return place


def make_numbered(folder: Path, count: int, rows: int) -> object:
    """Return numbered samples for a table. They need no files in `folder`."""
    return numbered(count, rows)


def _samples(rows: int, count: int, one_by_one: int, batch_size: int) -> Table:
    nbytes, make = rows * 4 * 4, partial(make_numbered, rows=rows)
    return Table(f"samples of {size(nbytes)}", ALL, count, one_by_one, batch_size, make, nbytes)


TABLES = {
    "small": _samples(rows=128, count=16_384, one_by_one=2_048, batch_size=256),  # 2 KiB
    "large": _samples(rows=32_768, count=384, one_by_one=384, batch_size=8),  # 512 KiB
}
