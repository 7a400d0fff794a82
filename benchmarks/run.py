"""Run every benchmark. Each prints its results next to their limits.

    make bench

Ratios come from one run on one machine, named in the last line. Leave the machine idle while it
runs.
"""

from __future__ import annotations

import platform
from datetime import date

from benchmarks import model, storage, tracing
from benchmarks.claims import __main__ as claims
from benchmarks.diagnose import __main__ as diagnose
from benchmarks.peers import __main__ as peers

BENCHMARKS = (tracing, model, storage, peers, diagnose, claims)


def main() -> None:
    """Run all benchmarks one at a time."""
    for benchmark in BENCHMARKS:
        benchmark.main()
        print()
    print(f"{date.today()}, {platform.platform()}, Python {platform.python_version()}")


if __name__ == "__main__":
    main()
