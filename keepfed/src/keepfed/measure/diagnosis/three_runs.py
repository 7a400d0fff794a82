"""Measure a loop in three runs: the loader alone, the step alone, and both together.

    print(headroom(loader, step))

No change to the loader makes the loop faster than its step alone, and no change to the step makes
it faster than its loader alone. So look at these two ratios before you change anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from keepfed.formatting import factor
from keepfed.measure.advice import ms
from keepfed.measure.diagnosis.loop import DiagnosedLoop, opened
from keepfed.measure.diagnosis.replay import Replay
from keepfed.measure.diagnosis.run import Run
from keepfed.measure.diagnosis.runs import require_batches, run_loop
from keepfed.measure.neighbors import Neighbors
from keepfed.measure.stacks import StackSampler

ALONE, STEP, TOGETHER = 0.4, 0.2, 0.4  # shares of the time


@dataclass(frozen=True)
class Headroom:
    """Seconds per batch of the loader alone, the step alone, and both together."""

    loader_s: float
    step_s: float
    together_s: float

    @property
    def of_loader(self) -> float:
        """Speed-up of the loop with an infinitely fast loader."""
        return max(1.0, self.together_s / self.step_s)

    @property
    def of_step(self) -> float:
        """Speed-up of the loop with an infinitely fast step."""
        return max(1.0, self.together_s / self.loader_s)

    def __str__(self) -> str:
        return (
            f"Loader alone {ms(self.loader_s)}, step alone {ms(self.step_s)}, together "
            f"{ms(self.together_s)} per batch. At most {factor(self.of_loader)} times as fast with "
            f"a faster loader, and {factor(self.of_step)} times with a faster step."
        )


def headroom(
    loader: Iterable[Any],
    step: Callable[[Any], Any],
    *,
    seconds: float = 20.0,
    synchronize: Callable[[], Any] | None = None,
) -> Headroom:
    """Measure how much faster a loop can become. Arguments and errors are those of `diagnose`."""
    with opened(loader, step, seconds, synchronize) as loop:
        runs = three_runs(loop, seconds)
    return Headroom(runs.alone.batch_s, runs.step.whole_s, runs.together.batch_s)


class ThreeRuns(NamedTuple):
    """The runs of the loader alone, the step alone, and both together."""

    alone: Run
    step: Run
    together: Run
    replay: Replay  # knows the cost of a batch
    others_cores: float  # cores that other programs kept busy


def three_runs(
    loop: DiagnosedLoop, seconds: float, stacks: StackSampler | None = None
) -> ThreeRuns:
    """Run the parts of a loop and the whole loop, for about `seconds` altogether."""
    replay, neighbors = Replay(loop), Neighbors()
    loop.show("the loader alone")
    alone = run_loop(loop.loader, replay.keep, seconds=ALONE * seconds, stacks=stacks)
    require_batches(alone, ALONE * seconds, loop)

    loop.show("the step alone")
    replay.warm_up(STEP * seconds / 2)
    step = run_loop(replay, loop.step, loop.synchronize, seconds=STEP * seconds, stacks=stacks)
    replay.end(step.used_device)

    loop.show("the loader and the step together")
    together = run_loop(
        loop.loader, loop.step, loop.synchronize, seconds=TOGETHER * seconds, stacks=stacks
    )
    require_batches(together, TOGETHER * seconds, loop)
    return ThreeRuns(alone, step, together, replay, neighbors.cores())
