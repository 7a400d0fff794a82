"""Whether a step of the capstone's training learns what it did, however it is written."""

import inspect
from functools import partial

import numpy as np
import pytest
import torch

from course_exercises.nb13 import fixed
from course_exercises.nb13.same_steps import learns_as_before
from course_stories.capstone import FirstStep, PulseTransformer

EVENTS, PULSES = 4, 8
AMP = "with torch.autocast('cpu', torch.bfloat16):\n        loss = model.loss(task, batch)"


def first_step(*changes: tuple[str, str]) -> FirstStep:
    """Return a step of the fixed script's `learn` after these changes."""
    text = inspect.getsource(fixed.learn)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    names = dict(vars(fixed))
    exec(text, names)
    rng = np.random.default_rng(13)
    model = PulseTransformer(rng.normal(0, 300, (60, 3)).astype(np.float32))
    batch = {
        "features": torch.from_numpy(rng.normal(0, 1, (EVENTS, PULSES, 4)).astype(np.float32)),
        "sensor": torch.from_numpy(rng.integers(60, size=(EVENTS, PULSES))),
        "mask": torch.ones(EVENTS, PULSES, dtype=torch.bool),
        "direction": torch.nn.functional.normalize(torch.ones(EVENTS, 3)),
    }
    given = model, torch.optim.AdamW(model.parameters(), 2e-3), "direction"
    return FirstStep(names["learn"], given, batch)


@pytest.mark.parametrize(
    "changes",
    [
        [],
        [("optimiser.zero_grad()", ""), ("step()", "step()\n    optimiser.zero_grad()")],
        [("loss = model.loss(task, batch)", AMP)],
    ],
)
def test_what_learns_the_same_is_let_through(changes: list[tuple[str, str]]) -> None:
    assert learns_as_before(first_step(*changes), "direction")


@pytest.mark.parametrize(
    "change",
    [
        ("optimiser.zero_grad()", ""),
        ("optimiser.step()", ""),
        ("loss.backward()", ""),
        ("model.loss(task, batch)", "2 * model.loss(task, batch)"),
        ("optimiser.step()", "optimiser.step()\n    optimiser.step()"),
    ],
)
def test_what_learns_something_else_is_found(change: tuple[str, str]) -> None:
    assert not learns_as_before(first_step(change), "direction")


@pytest.mark.parametrize(("function", "learns"), [("learn", True), ("evaluate", False)])
def test_a_closure_has_to_ask_an_optimiser_for_a_step(function: str, learns: bool) -> None:
    step = first_step()
    model, optimiser, task = step.given
    given = (model, optimiser, task) if learns else (model, task)
    closure = partial(getattr(fixed, function), *given)
    assert learns_as_before(FirstStep(closure, (), step.batch), "direction") is learns
