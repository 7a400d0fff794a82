"""Whether a step of a training teaches the model what it did before.

The emulated GPU computes nothing, so the step is taken here, on copies.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from course_exercises.judging import random_numbers_of
from course_exercises.nb13.fixed import learn
from course_stories.capstone import FirstStep

STEPS = 2  # what one leaves behind, such as gradients, shows in the next
ALIKE = 0.2  # relative; other precision makes a difference of some hundredths


def learns_as_before(step: FirstStep, task: str) -> bool:
    """Tell whether the optimiser gets the gradients that it did, in two steps with one batch.

    Of a function that is not handed both, such as a closure, only whether it asks an optimiser for
    one step.
    """
    kinds = nn.Module, Optimizer
    parts = [next((one for one in step.given if isinstance(one, kind)), None) for kind in kinds]
    if None in parts:
        return _steps_asked_for(step) == 1
    theirs = _gradients(step.function, *step.given, step.batch)
    ours = _gradients(learn, *parts, task, step.batch)
    return len(theirs) == len(ours) and all(
        torch.dist(one, other) < ALIKE * other.norm()
        for one, other in zip(theirs, ours, strict=True)
    )


def _steps_asked_for(step: FirstStep) -> int:
    asked: list[Optimizer] = []
    watch = register_optimizer_step_pre_hook(lambda optimiser, *_: asked.append(optimiser))
    try:
        with random_numbers_of(0):
            step.function(*step.given, step.batch)
    finally:
        watch.remove()
    return len(asked)


def _gradients(function: Callable[..., Any], *given: Any) -> list[Tensor]:
    """Return all gradients, in a row, that an optimiser gets in each step."""
    seen: list[Tensor] = []

    def look(optimiser: Optimizer, args: Any, kwargs: Any) -> None:
        every = [one for group in optimiser.param_groups for one in group["params"]]
        grads = [torch.zeros_like(one) if one.grad is None else one.grad for one in every]
        seen.append(torch.cat([grad.flatten() for grad in grads]))

    copies = deepcopy(given)
    optimiser = next(one for one in copies if isinstance(one, Optimizer))
    optimiser.register_step_pre_hook(look)
    with random_numbers_of(0):
        for _ in range(STEPS):
            function(*copies)
    return seen
