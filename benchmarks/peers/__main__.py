"""Print the throughput of our loaders and of other libraries: `make peers`.

    python -m benchmarks.peers                  all tables, and the limits for our loaders
    python -m benchmarks.peers events           one table
    python -m benchmarks.peers --record FILE    all tables, and a recording of them
    python -m benchmarks.peers --rounds 1       a fast, rough measurement

All installed libraries of the extra `peers` take part, including those that appendix B has
installed in a separate environment. Missing libraries are listed. Each loader runs in separate
processes, and the loaders alternate. Each throughput is shown with the number of samples and of
unique samples.
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
    """Measure and print, record if requested, and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=", ".join(TABLES))
    parser.add_argument("--record", type=Path, metavar="FILE", help="file for the tables")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="epochs of a slow loader")
    parser.add_argument(
        "--quick-rounds", type=int, default=QUICK_ROUNDS, help="epochs of a fast loader"
    )
    parser.add_argument(
        "--count", type=int, help="number of samples, for a fast measurement (default: all)"
    )
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
