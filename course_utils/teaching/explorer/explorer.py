"""Explore how loading strategies keep a GPU busy: predict every case, measure any of them.

box = explorer()
box             # switch strategy and times in the picture; no kernel is needed for that
box.measure()   # run what is chosen now, and show the measurement below the prediction
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from course_utils.measure.picture import Control, Picture, TimelineGrid, facts, key
from course_utils.measure.simulate import Pipeline, simulate
from course_utils.measure.trace import Trace

HOURS_PER_MONTH = 730  # 365 days / 12 * 24 h, rounded
SHARES = {"read_ms": 0.6, "decode_ms": 0.25, "transform_ms": 0.1, "collate_ms": 0.05}
COPY_MS = 8.0  # from pageable memory; half of it from pinned memory

# Each strategy keeps what the one before it brought.
STRATEGIES: Mapping[str, Mapping[str, Any]] = {
    "naive": {"num_workers": 0},
    "workers": {"prefetch_factor": 1},
    "prefetch": {"prefetch_factor": 4},
    "pinned": {"prefetch_factor": 4, "pinned": True},
    "CUDA prefetch": {"prefetch_factor": 4, "pinned": True, "overlap": True},
    "streaming": {"prefetch_factor": 4, "pinned": True, "overlap": True},
}


def explorer(
    *,
    load_ms: Sequence[int] = (20, 40, 80, 160),
    step_ms: Sequence[int] = (20, 50, 100),
    num_workers: Sequence[int] = (1, 2, 4),
    eur_per_hour: float = 2.0,
    start: Mapping[str, str | int] | None = None,
) -> Explorer:
    """Return the explorer.

    Args:
        load_ms: times to load one batch on one worker.
        step_ms: times of one step on the GPU.
        num_workers: numbers of workers.
        eur_per_hour: price of the GPU; an assumption, put yours in.
        start: the state to begin with, e.g. `{"strategy": "workers", "load": 80}`; what it leaves
            out begins in the middle.
    """
    controls = (
        Control("strategy", "Strategy", tuple(STRATEGIES)),
        Control("load", "Load time of a batch (ms)", tuple(load_ms)),
        Control("step", "Step time (ms)", tuple(step_ms)),
        Control("workers", "Workers", tuple(num_workers)),
    )
    return Explorer(controls, eur_per_hour, start or {})


class Explorer(TimelineGrid):
    """Predicted timelines of all states of the controls; `state` is what the learner has chosen."""

    def __init__(self, controls: Sequence[Control], eur_per_hour: float, start: Mapping[str, Any]):
        """Simulate every state once."""
        self._eur_per_hour = eur_per_hour
        states = {key(controls, state): state for state in _states(controls)}
        self._predicted = {name: simulate(_pipeline(state)) for name, state in states.items()}
        pictures = {}
        for name, state in states.items():
            figures = self._facts(self._predicted[name], state, controls)
            pictures[name] = Picture([self._predicted[name]], [state["strategy"]], facts=figures)
        middle = {c.name: c.options[len(c.options) // 2] for c in controls if c.name != "strategy"}
        super().__init__(controls, pictures, state={**middle, **start})

    @property
    def pipeline(self) -> Pipeline:
        """What is chosen now, as the model sees it."""
        return _pipeline(self.state)

    @property
    def idle(self) -> float:
        """Predicted idle share of what is chosen now."""
        return self._predicted[key(self.controls, self.state)].summary().idle

    def measure(self) -> Trace:
        """Run what is chosen now with real workers; draw it below the prediction."""
        from course_utils.teaching.explorer.run_pipeline import run_pipeline

        state = dict(self.state)
        measured = run_pipeline(_pipeline(state))
        predicted = self._predicted[key(self.controls, state)]
        names = [f"{state['strategy']}, predicted", "measured"]
        figures = self._facts(measured, state, self.controls)
        self.put(state, Picture([predicted, measured], names, facts=figures))
        return measured

    def _facts(
        self, trace: Trace, state: Mapping[str, Any], controls: Sequence[Control]
    ) -> dict[str, str]:
        summary = trace.summary()
        naive = self._predicted[key(controls, {**state, "strategy": "naive"})].summary()
        per_month = self._eur_per_hour * HOURS_PER_MONTH
        speed = summary.samples_per_s / naive.samples_per_s
        return {
            **{name: value for name, value in facts(trace).items() if name.startswith("GPU")},
            "Speed": f"{speed:.1f} times naive",
            "Idle time costs": f"{per_month * summary.idle:,.0f} of {per_month:,.0f} € a month",
        }


def _states(controls: Sequence[Control]) -> Iterator[dict[str, Any]]:
    for options in product(*(control.options for control in controls)):
        yield dict(zip((control.name for control in controls), options, strict=True))


def _pipeline(state: Mapping[str, Any]) -> Pipeline:
    strategy = str(state["strategy"])
    common = Pipeline(
        **{stage: share * state["load"] for stage, share in SHARES.items()},
        copy_ms=COPY_MS,
        step_ms=state["step"],
        steps=60,
        num_workers=state["workers"],
        cores=2,
        jitter=0.4,
    )
    chosen = replace(common, **STRATEGIES[strategy])
    if chosen.pinned:
        chosen = replace(chosen, copy_ms=COPY_MS / 2)
    if strategy == "streaming":  # whole shards in one long request, not one request per sample
        chosen = replace(chosen, read_ms=chosen.read_ms / 4)
    return chosen
