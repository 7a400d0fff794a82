"""Repeat the steps of a training with the colleague's `learn`, and compare the weights."""

from collections.abc import Callable, Sequence
from math import isclose
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from course_utils.exercises.judging.probes import weights_after
from course_utils.exercises.nb13.fixed import RATE, evaluate, learn
from course_utils.stories.capstone import PulseTransformer, Step

ALIKE = 0.6  # relative difference of what a step changes, up to 0.4 with bfloat16
CLOSE = 0.05  # relative difference of losses
SETTINGS = ("lr", "betas", "eps", "weight_decay", "maximize")  # settings of the optimiser


class Reference:
    """The colleague's training. It follows the script step by step."""

    def __init__(self, model: PulseTransformer, plan: Sequence[str]):
        """Use `model`, whose weights do not matter, as its size is that of the script's."""
        self.model, self.plan = model, plan
        # its state covers all steps, as in a training that keeps its optimiser
        self.optimiser = torch.optim.AdamW(model.parameters(), RATE)
        self.last: Tensor | None = None  # weights after the last step of the script

    def difference(self, epoch: int, step: Step) -> str:
        """Take a step from the script's weights, and return how the script's differs, or ""."""
        task = self.plan[epoch]
        rate = RATE * (1 - self.plan[:epoch].count(task) / self.plan.count(task))
        if step.before is None or step.after is None:
            return "changes no weights"
        if len(step.before) != len(parameters_to_vector(self.model.parameters())):
            return "trains another model"
        if self.last is not None and not torch.equal(step.before, self.last):
            return "begins with other weights than the step before it ended with"
        self.optimiser.param_groups[0]["lr"], self.last = rate, step.after
        for name in SETTINGS:
            got, wanted = step.settings[0].get(name), self.optimiser.param_groups[0][name]
            if not np.allclose(np.asarray(got, float), np.asarray(wanted, float), 1e-6, 0):
                return f"has {name}={got} in the optimiser instead of {name}={wanted}"
        vector_to_parameters(step.before.clone(), self.model.parameters())
        loss, ours = self._run(lambda: learn(self.model, self.optimiser, task, step.batch), step)
        if not _is_close(step.value, loss):
            return f"returns the loss {step.value} instead of {loss:.3f}"
        if torch.dist(step.after, ours) > ALIKE * torch.dist(step.before, ours):
            return "changes the weights in another way"
        return ""

    def look_difference(self, epoch: int, look: Step) -> str:
        """Evaluate held-out events, and return how the script's evaluation differs, or ""."""
        if self.last is None:
            return ""
        vector_to_parameters(self.last.clone(), self.model.parameters())
        loss, _ = self._run(lambda: evaluate(self.model, self.plan[epoch], look.batch), look)
        if _is_close(look.value, loss):
            return ""
        return f"returns {look.value} for held-out events instead of {loss:.3f}"

    def _run(self, function: Callable[[], Tensor], step: Step) -> tuple[float, Tensor]:
        values = list[Tensor]()
        with torch.random.fork_rng([]):
            torch.default_generator.manual_seed(step.seed)
            weights = weights_after(lambda _: values.append(function()), self.model)
        return values[0].item(), weights


def _is_close(value: Any, wanted: float) -> bool:
    return isinstance(value, float) and isclose(value, wanted, rel_tol=CLOSE, abs_tol=1e-3)
