"""Learning curves of the capstone's model, compared with guesses that need no model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
from matplotlib.figure import Figure

from course_utils.paths import recording
from course_utils.stories.figures import drawing

RECORDING = "capstone_learning.json"
SMOOTH, SMOOTH_SHORT = 25, 10  # steps averaged into one point of a curve, and of a short curve
TASKS = {
    "masked": "surprise at a hidden sensor (nats)",
    "direction": "1 − cos of the angle to the truth",
}


@dataclass(frozen=True)
class LearningCurves:
    """Losses of a training: the task of each epoch, its step losses and its score."""

    losses: Sequence[tuple[str, Sequence[float]]]
    scores: Sequence[tuple[str, float]]  # task and held-out loss after each epoch
    about: str  # machine on which the training ran
    without: Mapping[str, float] = field(default_factory=dict)  # held-out loss of a guess, by task

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


def recorded() -> LearningCurves:
    """Return the recorded curves of the fixed script, trained on 20,000 events."""
    return LearningCurves(**json.loads(recording(RECORDING).read_text("utf-8")))


def plot_learning(full: LearningCurves, mine: LearningCurves) -> Figure:
    """Draw both tasks of a full training, and the start of the learner's training."""
    with drawing(8.5, 3.2, columns=2, title=full.about) as (figure, panels):
        for panel, (task, label) in zip(panels, TASKS.items(), strict=True):
            panel.plot(*full.curve(task), label="20,000 events, recorded")
            panel.plot(*full.ends(task), "o", color="C0", label="on held-out events")
            if task in dict(mine.losses):
                label_of_mine = f"2,000 events, {mine.about}"
                panel.plot(*mine.curve(task, SMOOTH_SHORT), ".-", color="C1", label=label_of_mine)
            guess = "how often each sensor is hit" if task == "masked" else "a line fit"
            panel.axhline(full.without[task], color="gray", linestyle="--", label=guess)
            panel.set(xlabel="steps", ylabel=label, ylim=(0, None))
            panel.legend(fontsize="small")
    return figure
