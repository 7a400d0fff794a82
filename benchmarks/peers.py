"""Print how fast our loaders are beside those of others: `make peers`.

    python -m benchmarks.peers                      all tables, and the bars that ours have to reach
    python -m benchmarks.peers events               one of them
    python -m benchmarks.peers --record FILE        all, and a file as recordings/peers.json is
    python -m benchmarks.peers --rounds 1           a quick look

Whatever of the extra `peers` is installed takes part, also what appendix B has installed into an
environment of its own; what is missing is named. Each loader has processes of its own, and all take
turns. Beside each rate stand the books: how many samples came, and how many of them distinct.
"""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import date
from functools import partial
from importlib.metadata import version
from pathlib import Path

from benchmarks import peer_images, peer_loaders
from benchmarks.peer_images import DECODER, OURS, PILLOW, V2, image_peers
from benchmarks.peer_loaders import CONTIGUOUS, LISTED, SAME_FILE, THREE_LINES, TWO_THREADS
from benchmarks.peer_rounds import QUICK_ROUNDS, ROUNDS, Loaded, Table, measure
from course_utils.hardware.machine import drop_cache, usable_cores
from course_utils.paths import replace_file
from course_utils.words import size
from notebooks.stories.peers.course import BATCHED, LIMIT, RECORDS
from notebooks.stories.peers.libraries import ALL
from notebooks.stories.peers.measure import TASKS, Measured, threads
from notebooks.stories.peers.peer import Peers, numbered

Rows = Mapping[str, Measured]
Bar = tuple[str, str, float]  # whose rate over whose, and how much it has to be
BEST = "the best of the others"
BARS: dict[str, list[Bar]] = {
    "events": [
        *((RECORDS, other, 2.0) for other in (LISTED, SAME_FILE, BATCHED)),
        (RECORDS, LIMIT, 0.85),
        (CONTIGUOUS, THREE_LINES, 0.0),  # both give batches without gaps
        (TWO_THREADS, BEST, 1.0),
    ],
    "images, uint8": [(OURS, BEST, 1.3), (OURS, DECODER, 0.9)],
    "images, float": [(OURS, BEST, 1.3)],
    "photographs": [(OURS, V2, 3.0), (OURS, PILLOW, 3.0)],
}


def _small(task: str) -> Table:
    """Return a table of appendix B."""
    a = TASKS[task]
    what, make = f"samples of {size(a.sample_bytes)}", partial(_numbered, rows=a.rows)
    return Table(what, ALL, a.count, a.one_by_one, a.batch_size, make)


def _numbered(folder: Path, count: int, rows: int) -> object:
    return numbered(count, rows)


def _images(peers: Peers, width: int, height: int, count: int, batch_size: int) -> Table:
    what = f"JPEGs of about {width:,} x {height:,}"
    make = partial(peer_images.make, width=width, height=height)
    return Table(what, peers, count, count, batch_size, make)


_FLOATS, _BYTES = image_peers(floats=True), image_peers(floats=False)
TABLES: dict[str, Table] = {
    "small": _small("small"),
    "large": _small("large"),
    "events": Table(
        "events of 128 x 4 float32",
        peer_loaders.PEERS,
        200_000,
        4_096,
        1_024,
        partial(_numbered, rows=128),
    ),
    "images, float": _images(_FLOATS, 400, 350, 4_096, 128),
    "images, uint8": _images(_BYTES, 400, 350, 4_096, 128),
    "photographs": _images(
        {name: _FLOATS[name] for name in (OURS, V2, PILLOW, DECODER)}, 2_000, 1_500, 256, 32
    ),
}


def main(argv: Sequence[str] = ()) -> int:
    """Measure, print, and record if that is wished; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=", ".join(TABLES))
    parser.add_argument("--record", type=Path, metavar="FILE", help="where the tables are kept")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="epochs of a slow loader")
    parser.add_argument("--quick-rounds", type=int, default=QUICK_ROUNDS, help="of a fast one")
    parser.add_argument("--count", type=int, help="samples, if not all: for a quick look")
    wanted = parser.parse_args(argv)
    recorded, missing, titles = {}, {}, {}
    for key in wanted.tables or TABLES:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            table = TABLES[key].cut(min(wanted.count or TABLES[key].count, TABLES[key].count))
            found, left_out = measure(key, table, Path(folder), wanted.rounds, wanted.quick_rounds)
            rows = {one.name: one for one in found}
            print_table(table, rows, left_out)
            print_bars(BARS.get(key, []), rows)
            if key == "events":
                print_cold(table, Path(folder))
            titles[key] = table.title
            recorded[key], missing[key] = [one.row() for one in found], left_out
    if wanted.record:
        made = {
            "machine": f"{platform.system()}, {usable_cores()} cores, "
            f"Python {platform.python_version()}",
            "date": str(date.today()),
            "command": f"python -m benchmarks.peers {shlex.join(argv)}",
            "versions": {name: version(name) for name in ("numpy", "torch", "torchvision")},
            "left_out": missing,
            "titles": titles,
        }
        replace_file(wanted.record, json.dumps(made | recorded, indent=1))
    return 0


def print_table(table: Table, rows: Rows, left_out: Mapping[str, str]) -> None:
    """Print the loaders from slow to fast, and why some are missing."""
    print(
        f"{table.title}; warm, medians, in turn; first: until the first batch, and CPU: s per 1,000"
    )
    width = max(map(len, rows), default=0)
    head = "samples/s", "CPU", "first ms", "served", "distinct", "neighb.", "pixels", "uses"
    print(" " * (width + 2) + "".join(f"{name:>11}" for name in head))
    for one in sorted(rows.values(), key=lambda one: one.rate):
        cpu, pixels = 1e3 * one.cpu_s / one.books.served, one.pixels
        apart = "" if pixels is None else f"{pixels:.2f}"
        wrong = "" if one.books.complete else "  NOT every one exactly once"
        print(
            f"  {one.name:{width}}{one.rate:11,.0f}{cpu:11.3g}{1e3 * one.first_s:11,.0f}"
            f"{one.books.served:11,}{one.books.distinct:11,}{one.books.neighbours:11.1f}"
            f"{apart:>11}{one.uses:>16}{wrong}"
        )
    for name, reason in left_out.items():
        print(f"  {name} was left out: {reason}.")


def print_bars(bars: Sequence[Bar], rows: Rows) -> None:
    """Print what our loaders have to reach, as far as those others are here."""
    for ours, other, bar in bars:
        others = [
            row for name, row in rows.items() if name == other or (other == BEST and _rival(name))
        ]
        if ours in rows and others:
            best = max(others, key=lambda row: row.rate)
            ratio = rows[ours].rate / best.rate
            held = "holds" if ratio >= bar else "DOES NOT HOLD"
            print(f"  {ours} / {best.name}: {ratio:.2f} (bar {bar:g}) {held}", flush=True)


def _rival(name: str) -> bool:
    """Tell whether a loader is neither one of ours, nor a limit, nor given two threads of torch."""
    return not name.startswith((OURS, RECORDS, "limit", THREE_LINES))


def print_cold(table: Table, folder: Path) -> None:
    """Print the first epoch of files that are not in memory."""
    for name in RECORDS, BATCHED:
        dropped = drop_cache(table.written(table.peers[name], folder))
        if not dropped:
            print(f"  {dropped}")
            return
        with threads(1):
            loaded = Loaded(name, table, folder)
            seconds = loaded.first_s + loaded.run(0).seconds
        print(f"  cold, {name}: {table.count / seconds:,.0f} events/s")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
