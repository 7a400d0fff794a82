"""Run the cores of solved notebooks with the small data, and record how long their cells take.

    python -m notebooks.recordings.make_cell_seconds notebooks/recordings/cell_seconds.json 00 03 11

The seconds include the checks. The timetables of the instructor's guide use them.
"""

import json
import os
import sys
import tempfile
from datetime import date, datetime
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from course_utils.hardware.machine import usable_cores
from course_utils.paths import REPO

SIZE = "S"


def main(file: str, *numbers: str) -> None:
    """Run the notebooks with these numbers, and add their seconds to those in `file`."""
    path = Path(file)
    said = json.loads(path.read_text("utf-8")) if path.exists() else {"seconds": {}}
    said |= {"machine": f"Linux, {usable_cores()} cores, no GPU", "date": f"{date.today():%B %Y}"}
    said |= {"size": SIZE, "load": "other programs were running, so these are upper limits"}
    for number in numbers:
        (notebook,) = (REPO / "notebooks" / "solutions").glob(f"{number}_*.ipynb")
        said["seconds"][number] = round(seconds(notebook))
        said["seconds"] = dict(sorted(said["seconds"].items()))
        path.write_text(json.dumps(said, indent=1) + "\n", "utf-8")


def seconds(path: Path) -> float:
    """Run the core of a notebook from top to bottom, and return the seconds of its cells."""
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    notebook.cells = [c for c in notebook.cells if "extra" not in c.metadata.get("tags", ())]
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(notebook, timeout=600, resources={"metadata": {"path": folder}})
        client.execute(env={**os.environ, "COURSE_SIZE": SIZE})
    times = [cell.metadata.execution for cell in notebook.cells if cell.cell_type == "code"]
    return sum(_at(time, "idle") - _at(time, "busy") for time in times)


def _at(times: dict[str, str], status: str) -> float:
    return datetime.fromisoformat(times[f"iopub.status.{status}"]).timestamp()


if __name__ == "__main__":
    main(*sys.argv[1:])
