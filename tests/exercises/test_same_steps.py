"""The reference of the capstone accepts a training that learns the same, however it is written."""

import inspect
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils import parameters_to_vector

from course_utils.exercises.nb13 import fixed
from course_utils.exercises.nb13.same_steps import Reference
from course_utils.stories.capstone import PulseTransformer, Step, one_thread

EVENTS, PULSES, STEPS = 4, 8, 12
PLAN = ["direction"]
LOSS = "loss = model.loss(task, batch)\n    loss.backward"
AMP = f"with torch.autocast('cpu', torch.bfloat16):\n        {LOSS}"
SENSORS = np.random.default_rng(13).normal(0, 300, (60, 3)).astype(np.float32)


def batch(seed: int) -> dict[str, torch.Tensor]:
    rng = torch.Generator().manual_seed(seed)
    return {
        "features": torch.randn(EVENTS, PULSES, 4, generator=rng),
        "sensor": torch.randint(60, (EVENTS, PULSES), generator=rng),
        "mask": torch.ones(EVENTS, PULSES, dtype=torch.bool),
        "direction": torch.nn.functional.normalize(torch.randn(EVENTS, 3, generator=rng)),
    }


def differences(*changes: tuple[str, str], rate: float = fixed.RATE) -> set[str]:
    """Train with the fixed script's `learn` after some changes; return what the reference says."""
    text = inspect.getsource(fixed.learn)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    names = dict(vars(fixed))
    exec(text, names)
    torch.manual_seed(3)
    with one_thread():
        return _train(names["learn"], rate)


def _train(learn: Any, rate: float) -> set[str]:
    model, reference = PulseTransformer(SENSORS), Reference(PulseTransformer(SENSORS), PLAN)
    optimiser = torch.optim.AdamW(model.parameters(), rate)
    said = set()
    for seed in range(1, STEPS + 1):
        before = parameters_to_vector(model.parameters()).detach().clone()
        torch.manual_seed(seed)
        value = learn(model, optimiser, "direction", batch(seed)).item()
        after = parameters_to_vector(model.parameters()).detach().clone()
        settings = [dict(optimiser.param_groups[0])]
        step = Step([], value, seed, batch(seed), settings, before, after)
        said.add(reference.difference(0, step))
    return said


@pytest.mark.parametrize(
    "changes",
    [
        [],
        [("optimiser.zero_grad()", ""), ("step()", "step()\n    optimiser.zero_grad()")],
        [(LOSS, AMP)],
    ],
)
def test_training_that_learns_the_same_is_accepted(changes: list[tuple[str, str]]) -> None:
    assert differences(*changes) == {""}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("optimiser.zero_grad()", ""), "changes the weights in another way"),
        (("optimiser.step()", ""), "changes the weights in another way"),
        (("loss.backward()", ""), "changes the weights in another way"),
        (("loss.backward()", "(-loss).backward()"), "changes the weights in another way"),
        (("model.loss(task, batch)", "2 * model.loss(task, batch)"), "returns the loss"),
        (("optimiser.step()", "optimiser.step()\n    optimiser.step()"), "in another way"),
    ],
)
def test_training_that_learns_something_else_is_found(change: tuple[str, str], words: str) -> None:
    assert any(words in said for said in differences(change))


@pytest.mark.parametrize("rate", [0.0, 1e-3, 2.0])
def test_another_learning_rate_is_found(rate: float) -> None:
    assert any("has lr=" in said for said in differences(rate=rate))


def test_new_model_between_two_steps_is_found() -> None:
    reference = Reference(PulseTransformer(SENSORS), PLAN)
    count = len(parameters_to_vector(reference.model.parameters()))
    reference.last = torch.zeros(count)
    step = Step([], 0.5, 1, batch(1), [{}], torch.ones(count), torch.ones(count))
    assert "begins with other weights" in reference.difference(0, step)
