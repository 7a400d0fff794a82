"""Train the fixed script of the capstone on the events of size M, and record how it learns.

python notebooks/recordings/make_capstone_learning.py capstone_learning.json
"""

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import date
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import course_utils as cu
from course_utils.hardware.machine import usable_cores
from course_utils.loading.events import MemmapEvents, read_sensors
from course_utils.stories.capstone import Job, load, script_with
from course_utils.stories.capstone.learning import LearningCurves

Pulses = NDArray[np.float32]  # (n, 4): time, charge, sensor_id, alone
AT_ONCE = 64  # events read with one call
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
    fields = asdict(LearningCurves(job.losses, job.scores, about, without_a_model(job)))
    fields["losses"] = [(task, [round(loss, 4) for loss in epoch]) for task, epoch in job.losses]
    Path(file).write_text(json.dumps(fields), "utf-8")


def without_a_model(job: Job) -> dict[str, float]:
    """Return the loss of a guess without a model on held-out events, by task.

    For "masked", the guess is the frequency of each sensor in the training events. For "direction",
    it is a line fitted to the times of the pulses whose neighbours were hit too.
    """
    events, sensors = MemmapEvents(job.folder), read_sensors(job.folder)
    counts, surprise, fitted = np.ones(len(sensors)), list[float](), list[float]()
    for pulses, _ in _read(events, job.training):
        np.add.at(counts, _with_neighbours(pulses)[:, 2].astype(int), 1)
    nats = -np.log(counts / counts.sum())
    for pulses, truth in _read(events, job.held_out):
        surprise += nats[_with_neighbours(pulses)[:, 2].astype(int)].tolist()
        fitted.append(1 - float(line_fit(pulses, sensors) @ truth))
    return {"masked": float(np.mean(surprise)), "direction": float(np.mean(fitted))}


def line_fit(pulses: Pulses, sensors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the direction of a particle's origin as a unit vector, from a line through its pulses.

    The line is a least-squares fit of position against time, weighted by charge.
    """
    time, charge, sensor, _ = _with_neighbours(pulses).T
    place = sensors[sensor.astype(int)]
    late = time - np.average(time, weights=charge)
    off = place - np.average(place, axis=0, weights=charge)
    velocity = (charge * late) @ off
    return np.asarray(-velocity / max(float(np.linalg.norm(velocity)), 1e-9))


def _read(events: MemmapEvents, wanted: Sequence[int]) -> Iterator[tuple[Pulses, Pulses]]:
    """Yield the pulses and the direction of each event."""
    for first in range(0, len(wanted), AT_ONCE):
        for sample in events.__getitems__(wanted[first : first + AT_ONCE]):
            yield sample["pulses"].numpy(), sample["direction"].numpy()


def _with_neighbours(pulses: Pulses) -> Pulses:
    """Return the pulses whose neighbours were hit too, or all if fewer than three are left."""
    chosen = pulses[pulses[:, 3] == 0]
    return chosen if len(chosen) > 2 else pulses


if __name__ == "__main__":
    main(sys.argv[1])
