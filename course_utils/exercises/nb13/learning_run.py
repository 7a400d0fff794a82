"""Run a script on a few events, and repeat each of its steps as the colleague wrote it."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from math import isclose
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import AdamW, Optimizer

from course_utils.errors import CourseError
from course_utils.exercises.nb13.fixed import RATE, evaluate, learn, tokenize
from course_utils.loading.events import MemmapEvents, read_sensors
from course_utils.stories.capstone import Job, PulseTransformer

PLAN = ["masked", "direction", "masked"]  # a task and an order may come again
FIRST, EVENTS, HELD_OUT = 1100, 35, 17  # few events, and not a multiple of the batch size
SETTINGS = ("lr", "betas", "eps", "weight_decay", "maximize")  # settings of the optimizer
CLOSE, SAME = 0.05, 1e-6  # relative difference of losses, with bfloat16 and with float32
ALIKE, EQUAL = 0.6, 0.1  # relative difference of what a step changes, the same way
PARTS = ("features", "sensor", "mask", "direction")  # of a batch, that the model reads
USAGE = "losses.append(job.compute(learn, model, optimizer, task, job.upload(batch)))"


class LearningRun(Job):
    """A real training on `EVENTS` events that notes where it differs from the colleague's."""

    def __init__(self, folder: str | Path):
        super().__init__(folder, PLAN)
        self.device = torch.device("cpu")
        self.training = list(range(FIRST, FIRST + EVENTS))
        self.held_out = list(range(FIRST + EVENTS, FIRST + EVENTS + HELD_OUT))
        # by epoch: event IDs and losses of the steps and of the evaluation
        self.steps, self.looks = [list[int]() for _ in PLAN], [list[int]() for _ in PLAN]
        self.losses_of_steps = [list[float]() for _ in PLAN]
        self.losses_of_looks = [list[float]() for _ in PLAN]
        self.noted: list[tuple[str, list[float], list[float]]] = []  # what job.note received
        self.difference = ""  # first difference from the colleague's training, as a clause
        self._sensors, self._events = read_sensors(folder), MemmapEvents(folder)
        ids = self._events.labels.event_id.tolist()
        self.ids, self.held_out_ids = (
            {ids[n] for n in part} for part in (self.training, self.held_out)
        )
        self._index = {ids[n]: n for n in (*self.training, *self.held_out)}
        self._used: dict[str, Any] = {}  # the model and the optimizer of the first step

    def compute(self, function: Callable[..., Any], *given: Any) -> Any:
        """Call `function`, and do what it should do with a copy of the model."""
        epoch, batch = min(len(self.noted), len(PLAN) - 1), given[-1]
        model = next((one for one in given if isinstance(one, Module)), None)
        optimizer = next((one for one in given if isinstance(one, Optimizer)), None)
        if model is None or not isinstance(batch, dict) or not {"event_id", *PARTS} <= {*batch}:
            raise CourseError(
                "job.compute did not receive the model and a batch of job.upload. Call it as your "
                f"colleague did: {USAGE}"
            )
        is_step = optimizer is not None
        events = (self.steps if is_step else self.looks)[epoch]
        losses = (self.losses_of_steps if is_step else self.losses_of_looks)[epoch]
        before = [parameter.detach().clone() for parameter in model.parameters()]
        copies = deepcopy((model, optimizer) if is_step else (model,))
        problem = self._problem_before(epoch, batch, model, optimizer)
        with torch.random.fork_rng([]):
            torch.manual_seed(len(losses))
            loss = function(*given)
            losses.append(float(loss) if isinstance(loss, float | Tensor) else float("nan"))
            if not problem:
                torch.manual_seed(len(losses) - 1)
                repeat: Any = learn if is_step else evaluate
                wanted = repeat(*copies, PLAN[epoch], batch).item()
                problem = _problem_after(losses[-1], wanted, before, model, copies[0])
        if problem and not self.difference:
            part = f"step {len(losses) - 1}" if is_step else "the evaluation"
            self.difference = f"in epoch {epoch}, {part} {problem}"
        events += batch["event_id"].tolist()
        return losses[-1]

    def note(self, task: str, losses: Sequence[Any], seen: Sequence[Any]) -> None:
        """Record what the script reports of an epoch."""
        self.noted.append((task, [*map(float, losses)], [*map(float, seen)]))

    def _problem_before(self, epoch: int, batch: Any, model: Any, optimizer: Any) -> str:
        """Compare tokens, model and optimizer with the colleague's."""
        for event, *parts in zip(batch["event_id"].tolist(), *map(batch.get, PARTS), strict=True):
            if event not in self._index:
                return f"reads event {event}, which is not one of this job"
            wanted = tokenize(self._events[self._index[event]], self._sensors)
            for name, part in zip(PARTS, parts, strict=True):
                right = np.asarray(wanted[name])
                if part.shape != right.shape or not np.allclose(part, right, atol=0.01):
                    return f"sees another {name!r} of event {event} than before"
        for name, part in ("model", model), ("optimizer", optimizer):
            if part is not None and self._used.setdefault(name, part) is not part:
                return f"uses a new {name}, which has forgotten the steps before"
        if optimizer is None:
            return ""
        whole = PulseTransformer(self._sensors).parameters()
        trained = (p for group in optimizer.param_groups for p in group["params"])
        if sum(p.numel() for p in trained if p.requires_grad) != sum(p.numel() for p in whole):
            return "trains another model, or only a part of it"
        rate = RATE * (1 - PLAN[:epoch].count(PLAN[epoch]) / PLAN.count(PLAN[epoch]))
        usual = AdamW([torch.zeros(1)], rate).param_groups[0]
        for name in SETTINGS:
            got = optimizer.param_groups[0].get(name)
            if got != usual[name]:
                return f"has {name}={got} in the optimizer instead of {name}={usual[name]}"
        return ""


def _problem_after(
    loss: float, wanted: float, before: Sequence[Tensor], model: Any, copy: Any
) -> str:
    """Compare the loss and the weights with those of the colleague's function."""
    if not isclose(loss, wanted, rel_tol=CLOSE, abs_tol=1e-3):
        return f"returns the loss {loss:.3f} instead of {wanted:.3f}"
    moved = missed = 0.0
    with torch.no_grad():
        for old, new, right in zip(before, model.parameters(), copy.parameters(), strict=True):
            if torch.equal(old, new) and not torch.equal(old, right):
                return "does not change all weights"
            moved += (right - old).square().sum().item()
            missed += (right - new).square().sum().item()
    limit = EQUAL if isclose(loss, wanted, rel_tol=SAME) else ALIKE
    return "changes the weights in another way" if missed > limit**2 * moved else ""
