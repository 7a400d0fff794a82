"""Tables of loaders to compare, in addition to those of appendix B."""

from __future__ import annotations

from functools import partial

from benchmarks.peers import events
from benchmarks.peers.images import DECODER, OURS, PILLOW, V2, image_peers, make
from course_utils.stories.peers import tables as course
from course_utils.stories.peers.peer import Peers
from course_utils.stories.peers.tables import Table, make_numbered


def _images(peers: Peers, width: int, height: int, count: int, batch_size: int) -> Table:
    what = f"JPEGs of about {width:,} x {height:,}"
    images = partial(make, width=width, height=height)
    return Table(what, peers, count, count, batch_size, images)


_FLOATS, _BYTES = image_peers(floats=True), image_peers(floats=False)
TABLES = course.TABLES | {
    "events": Table(
        "events of 128 x 4 float32",
        events.PEERS,
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
