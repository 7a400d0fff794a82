"""Learning curves of the capstone's model, compared with guesses that need no model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from course_utils.loading.events import MemmapEvents, read_sensors
from course_utils.paths import recording
from course_utils.stories.capstone.job import Job
from course_utils.stories.figures import drawing

Pulses = NDArray[np.float32]  # (n, 4): time, charge, sensor_id, alone
RECORDING = "capstone_learning.json"
SMOOTH, SMOOTH_SHORT = 25, 10  # steps averaged into one point of a curve, and of a short curve
AT_ONCE = 64  # events read with one call
TASKS = {
    "masked": "surprise at a hidden sensor (nats)",
    "direction": "1 − cos of the angle to the truth",
}


@dataclass(frozen=True)
class LearningCurves:
    """Losses of a training: the task of each epoch, its step losses and its score."""

    losses: Sequence[tuple[str, Sequence[float]]]
    scores: Sequence[tuple[str, float]]  # task and held-out loss after each epoch
    without: dict[str, float]  # held-out loss of a guess without a model, by task
    about: str  # machine on which the training ran

    def curve(self, task: str, smooth: int = SMOOTH) -> tuple[list[int], list[float]]:
        """Return steps and losses of one task, averaged over `smooth` steps."""
        losses = [loss for name, epoch in self.losses if name == task for loss in epoch]
        ends = range(smooth, len(losses) + 1, smooth)
        return [*ends], [float(np.mean(losses[end - smooth : end])) for end in ends]

    def ends(self, task: str) -> tuple[list[int], list[float]]:
        """Return the step at which each epoch of a task ended, and the score there."""
        steps = accumulate(len(epoch) for name, epoch in self.losses if name == task)
        scores = [score for name, score in self.scores if name == task]
        return [*steps][: len(scores)], scores


def learning_curves(job: Job, about: str) -> LearningCurves:
    """Return the learning curves of a finished job."""
    return LearningCurves(job.losses, job.scores, without_a_model(job), about)


def recorded() -> LearningCurves:
    """Return the recorded curves of the fixed script, trained on 20,000 events."""
    return LearningCurves(**json.loads(recording(RECORDING).read_text("utf-8")))


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


def plot_learning(full: LearningCurves, mine: LearningCurves | None = None) -> Figure:
    """Draw both tasks of a full training, and the start of the learner's training."""
    with drawing(8.5, 3.2, columns=2, title=full.about) as (figure, panels):
        for panel, (task, label) in zip(panels, TASKS.items(), strict=True):
            panel.plot(*full.curve(task), label="20,000 events, recorded")
            panel.plot(*full.ends(task), "o", color="C0", label="on held-out events")
            if mine and (curve := mine.curve(task, SMOOTH_SHORT))[0]:
                panel.plot(*curve, ".-", color="C1", label=f"2,000 events, {mine.about}")
            _guess(panel, full.without[task], task)
            panel.set(xlabel="steps", ylabel=label, ylim=(0, None))
            panel.legend(fontsize="small")
    return figure


def _guess(panel: Axes, value: float, task: str) -> None:
    name = "how often each sensor is hit" if task == "masked" else "a line fit"
    panel.axhline(value, color="gray", linestyle="--", label=name)


def _read(events: MemmapEvents, wanted: Sequence[int]) -> Any:
    for first in range(0, len(wanted), AT_ONCE):
        for sample in events.__getitems__(wanted[first : first + AT_ONCE]):
            yield sample["pulses"].numpy(), sample["direction"].numpy()


def _with_neighbours(pulses: Pulses) -> Pulses:
    """Return the pulses whose neighbours were hit too, or all if fewer than three are left."""
    chosen = pulses[pulses[:, 3] == 0]
    return chosen if len(chosen) > 2 else pulses
