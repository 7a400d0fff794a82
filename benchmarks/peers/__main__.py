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
from collections.abc import Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path

from benchmarks.peers.report import BARS, print_bars, print_cold, print_table
from benchmarks.peers.rounds import QUICK_ROUNDS, ROUNDS, measure
from benchmarks.peers.tables import TABLES
from course_utils.hardware.machine import usable_cores
from keepfed.files import replace_file


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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
