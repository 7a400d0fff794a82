"""Tables of loaders to compare."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.peers import events
from benchmarks.peers.images import DECODER, OURS, PILLOW, V2, image_peers, make
from benchmarks.peers.root import ROOT_PEERS
from course_utils.stories.peers.libraries import ALL
from course_utils.stories.peers.measure import TASKS
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


def _small(task: str) -> Table:
    """Return a table from appendix B."""
    a = TASKS[task]
    what, make = f"samples of {size(a.sample_bytes)}", partial(_numbered, rows=a.rows)
    return Table(what, ALL, a.count, a.one_by_one, a.batch_size, make)


def _numbered(folder: Path, count: int, rows: int) -> object:
    return numbered(count, rows)


def _images(peers: Peers, width: int, height: int, count: int, batch_size: int) -> Table:
    what = f"JPEGs of about {width:,} x {height:,}"
    images = partial(make, width=width, height=height)
    return Table(what, peers, count, count, batch_size, images)


_FLOATS, _BYTES = image_peers(floats=True), image_peers(floats=False)
TABLES: dict[str, Table] = {
    "small": _small("small"),
    "large": _small("large"),
    "events": Table(
        "events of 128 x 4 float32",
        events.PEERS,
        200_000,
        4_096,
        1_024,
        partial(_numbered, rows=128),
    ),
    "ROOT": Table(
        "entries of 32 x 4 float32 in ROOT files",
        ROOT_PEERS,
        20_000,
        20_000,
        256,
        partial(_numbered, rows=32),
    ),
    "images, float": _images(_FLOATS, 400, 350, 4_096, 128),
    "images, uint8": _images(_BYTES, 400, 350, 4_096, 128),
    "photographs": _images(
        {name: _FLOATS[name] for name in (OURS, V2, PILLOW, DECODER)}, 2_000, 1_500, 256, 32
    ),
}
