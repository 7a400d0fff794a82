"""Tables of loaders to compare, in addition to those of appendix B."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from benchmarks.peers.images import DECODER, OURS, PILLOW, V2, image_peers, make
from course_utils.stories.peers import formats
from course_utils.stories.peers import tables as course
from course_utils.stories.peers.course import LIMIT
from course_utils.stories.peers.libraries import ALL
from course_utils.stories.peers.peer import Epoch, Peers, peer, places
from course_utils.stories.peers.tables import Table, make_numbered

EVENTS: Peers = {**ALL}
THREE_LINES = "three lines: mapped .npy, index_select"
TWO_THREADS = f"{THREE_LINES}, 2 threads"


@peer(EVENTS, THREE_LINES, formats.npy)
def three_lines(folder: Path, batch_size: int) -> Epoch:
    pulses = torch.from_numpy(np.load(folder / "pulses.npy", mmap_mode="c"))

    def epoch(number: int) -> Iterator[torch.Tensor]:
        for chosen in torch.split(torch.randperm(len(pulses)), batch_size):
            yield places(torch.index_select(pulses, 0, chosen))

    return epoch


EVENTS |= {
    f"{name}, 2 threads": replace(EVENTS[name], threads=2, uses="2 threads")
    for name in (LIMIT, THREE_LINES)
}


def _images(peers: Peers, width: int, height: int, count: int, batch_size: int) -> Table:
    what = f"JPEGs of about {width:,} x {height:,}"
    images = partial(make, width=width, height=height)
    return Table(what, peers, count, count, batch_size, images)


_FLOATS, _BYTES = image_peers(floats=True), image_peers(floats=False)
TABLES = course.TABLES | {
    "events": Table(
        "events of 128 x 4 float32",
        EVENTS,
        count=200_000,
        one_by_one=4_096,
        batch_size=1_024,
        make=partial(make_numbered, rows=128),
    ),
    "images, float": _images(_FLOATS, 400, 350, 4_096, 128),
    "images, uint8": _images(_BYTES, 400, 350, 4_096, 128),
    "photographs": _images(
        {name: _FLOATS[name] for name in (OURS, V2, PILLOW, DECODER)}, 2_000, 1_500, 256, 32
    ),
}
