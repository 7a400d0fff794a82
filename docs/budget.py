"""Compare the lines of each room of the project with its limit in docs/budget.toml: `make lint`.

It counts all lines of Python, JavaScript and CSS, and of the wrong attempts in tests/exercises, in
the files that git tracks. A file belongs to the room with the longest path that contains it.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
COUNTED = {".css", ".diff", ".js", ".py"}
NOWHERE = "(no room)"


def count(root: Path, rooms: dict[str, dict[str, Any]]) -> Counter[str]:
    """Return the lines of each room of the project in `root`, a git checkout."""
    homes = {path: room for room, entry in rooms.items() for path in entry["paths"]}
    listing = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True)
    lines: Counter[str] = Counter()
    for name in listing.stdout.splitlines():
        path = root / name
        if path.suffix in COUNTED and path.is_file():
            inside = [home for home in homes if f"{name}/".startswith(f"{home}/")]
            room = homes[max(inside, key=len)] if inside else NOWHERE
            lines[room] += len(path.read_text("utf-8").splitlines())
    return lines


def main(root: Path = ROOT) -> int:
    """Print the lines of each room, and return 1 if one of them has too many."""
    rooms = tomllib.loads((root / "docs" / "budget.toml").read_text("utf-8"))
    lines = count(root, rooms)
    over = 0
    for room in sorted({*rooms, *lines}):
        limit = rooms.get(room, {"lines": 0})["lines"]
        excess = lines[room] - limit
        over += excess > 0
        remark = f"  {excess:,} too many" if excess > 0 else ""
        print(f"{room:24}{lines[room]:8,} of {limit:7,}{remark}")
    if over:
        print("Take lines away, or move a limit from another room in the same commit.")
    return int(over > 0)


if __name__ == "__main__":
    sys.exit(main())
