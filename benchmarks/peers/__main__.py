"""Print the throughput of our loaders and of other libraries: `make peers`.

    python -m benchmarks.peers                  all tables, and the limits for our loaders
    python -m benchmarks.peers events           one table
    python -m benchmarks.peers --record FILE    all tables, and a recording of them
    python -m benchmarks.peers --count 400      a fast, rough measurement

All installed libraries of the extra `peers` take part, including those that appendix B has
installed in a separate environment. Missing libraries are listed. Each loader runs in a separate
process, and the loaders alternate. Each throughput is shown with the number of samples and of
unique samples, next to what we recorded, which has more libraries.
"""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from importlib.metadata import version
from pathlib import Path

from benchmarks.peers.images import OURS, PILLOW, V2
from benchmarks.peers.rounds import measure
from benchmarks.peers.tables import TABLES, THREE_LINES, TWO_THREADS
from course_utils.hardware.machine import usable_cores
from course_utils.stories.peers import recorded
from course_utils.stories.peers.course import BATCHED, LIMIT
from course_utils.stories.peers.measure import Measurement
from keepfed.files import replace_file

Rows = Mapping[str, Measurement]
Bar = tuple[str, str, float]  # our loader, other loader, smallest ratio of their throughputs
BEST = "the best of the others"
BARS: dict[str, list[Bar]] = {
    "events": [
        (THREE_LINES, BATCHED, 2.0),
        (THREE_LINES, LIMIT, 0.85),
        (TWO_THREADS, BEST, 1.0),
    ],
    "images, uint8": [(OURS, BEST, 1.0)],
    "images, float": [(OURS, BEST, 1.0)],
    "photographs": [(OURS, V2, 1.2), (OURS, PILLOW, 2.0)],
}


def main(argv: Sequence[str] = ()) -> int:
    """Measure and print, record if requested, and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=", ".join(TABLES))
    parser.add_argument("--record", type=Path, metavar="FILE", help="file for the tables")
    parser.add_argument("--count", type=int, help="number of samples (default: all)")
    wanted = parser.parse_args(argv)
    kept, missing, titles = {}, {}, {}
    for key in wanted.tables or TABLES:
        table = TABLES[key].cut(min(wanted.count or TABLES[key].count, TABLES[key].count))
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            rows, missing[key] = measure(key, table, Path(folder))
        print(replace(recorded(key), title=table.title, here=rows, sample_bytes=table.sample_bytes))
        for name, reason in missing[key].items():
            print(f"  {name} was left out: {reason}.")
        print_bars(BARS.get(key, []), rows)
        titles[key], kept[key] = table.title, [row.row() for row in rows.values()]
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
        replace_file(wanted.record, json.dumps(made | kept, indent=1))
    return 0


def print_bars(bars: Sequence[Bar], rows: Rows) -> None:
    """Print incomplete epochs, and the limits for our loaders where others are available."""
    for row in rows.values():
        if not row.books.complete:
            print(f"  {row.name}: NOT every one exactly once")
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
    """Return whether a loader is neither ours nor a limit."""
    return not name.startswith((OURS, "limit", THREE_LINES))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
