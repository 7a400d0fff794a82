"""Run solved notebooks with the small data, and record how much memory a learner takes.

python notebooks/recordings/make_memory.py memory.json 00 03 11

Counted is the kernel with all its children, workers among them, at the moment when they take most.
What several of them share, such as the code of torch, counts once.
"""

import json
import os
import shutil
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from subprocess import Popen

import psutil

from course_utils.hardware.machine import usable_cores
from course_utils.paths import REPO

SIZE = "S"


def main(file: str, *numbers: str) -> None:
    """Run the notebooks with these numbers, and add their peaks to those in `file`."""
    path = Path(file)
    said = json.loads(path.read_text("utf-8")) if path.exists() else {"peak_mb": {}}
    said |= {"machine": f"Linux, {usable_cores()} cores, no GPU", "date": f"{date.today():%B %Y}"}
    said |= {"size": SIZE}
    for number in numbers:
        (notebook,) = (REPO / "notebooks" / "solutions").glob(f"{number}_*.ipynb")
        said["peak_mb"][number] = peak_mb(notebook)
        said["peak_mb"] = dict(sorted(said["peak_mb"].items()))
        path.write_text(json.dumps(said, indent=1) + "\n", "utf-8")


def peak_mb(notebook: Path) -> int:
    """Run a notebook from top to bottom; return the most that its processes took together."""
    peak = 0.0
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(notebook, folder)
        env = {**os.environ, "COURSE_SIZE": SIZE}
        run = Popen(
            [sys.executable, "-m", "jupyter", "execute", notebook.name], cwd=folder, env=env
        )
        while run.poll() is None:
            peak = max(peak, sum(map(_own_bytes, psutil.Process(run.pid).children(recursive=True))))
            time.sleep(0.3)
    if run.returncode:
        raise SystemExit(f"{notebook.name} did not run to its end.")
    return round(peak / 1e6)


def _own_bytes(process: psutil.Process) -> float:
    """Return its proportional set size (PSS); 0 if it has just ended."""
    try:
        return float(process.memory_full_info().pss)
    except psutil.NoSuchProcess:
        return 0.0


if __name__ == "__main__":
    main(*sys.argv[1:])
