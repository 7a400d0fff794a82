"""Measure the ratios that the notebooks claim, and print them next to their limits.

python -m benchmarks.claims          all of them; exit status 1 if one is outside its limits
python -m benchmarks.claims 02       those of one notebook
"""

import os
import platform
import sys
from collections.abc import Sequence
from datetime import date

from notebooks.claims import Claim, read_claims


def main(argv: Sequence[str] | None = None) -> int:
    """Print one line per ratio, and return the exit status."""
    wanted = sys.argv[1:] if argv is None else argv
    claims = [
        c for c in read_claims() if c.kind == "ratio" and (not wanted or c.notebook in wanted)
    ]
    print(f"Claimed ratios, {date.today()}, {platform.platform()}, {os.cpu_count()} cores")
    held = [_measure(claim) for claim in claims]
    return 0 if all(held) else 1


def _measure(claim: Claim) -> bool:
    found = float(claim.measure())
    lowest, highest = claim.band or (found, found)
    held = claim.holds(found)
    print(
        f"  {claim.id:<32} {found:8.3g}   claimed {lowest:g} to {highest:g}   "
        f"{'holds' if held else 'DOES NOT HOLD'}",
        flush=True,
    )
    return held


if __name__ == "__main__":
    sys.exit(main())
