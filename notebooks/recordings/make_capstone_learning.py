"""Train the fixed script of the capstone on the events of size M, and record how it learns.

python notebooks/recordings/make_capstone_learning.py capstone_learning.json
"""

import json
import sys
import tempfile
import time
from dataclasses import asdict
from datetime import date
from pathlib import Path

import course_utils as cu
from course_utils.hardware.machine import usable_cores
from course_utils.stories.capstone import Job, load, script_with
from course_utils.stories.capstone.learning import learning_curves

PLAN = ["masked"] * 2 + ["direction"] * 4


def main(file: str) -> None:
    """Train, and write losses and scores to `file`."""
    job = Job(cu.data_path("events", "M"), PLAN, seconds=3600)
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "rescue_0.py"
        script.write_text(script_with([]), "utf-8")
        start = time.perf_counter()
        job.run(load(script).train)
    minutes = (time.perf_counter() - start) / 60
    about = f"trained for {minutes:.0f} min on {usable_cores()} cores, {date.today():%B %Y}"
    fields = asdict(learning_curves(job, about))
    fields["losses"] = [(task, [round(loss, 4) for loss in epoch]) for task, epoch in job.losses]
    Path(file).write_text(json.dumps(fields), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
