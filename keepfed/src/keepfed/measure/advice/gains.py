"""Predict the gain of a change with a simulated loop."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from keepfed.measure.advice.estimates import Measurements
from keepfed.measure.advice.thresholds import BUSY_CORES
from keepfed.measure.simulate import Pipeline, simulate
from keepfed.measure.spans import compute_spans

STEPS = 60  # steps of the simulated loop


def gain(m: Measurements, *, fetch_speedup: float = 1.0, **changes: Any) -> float:
    """Return the speed-up of the simulated loop with `changes` to its pipeline.

    `fetch_speedup` is the speed-up of fetching alone. The start-up of an epoch does not change.
    """
    now = pipeline(m)
    return _ratio(m, iteration_ms(now), replace(_faster(now, fetch_speedup), **changes))


def gain_of_less_work(m: Measurements, **changes: float) -> float:
    """Return the gain if a fetch does less work, limited to the gain of an ideal loader.

    The measured loop may be slower than the model, because its workers and its step slow each
    other down. Less work removes some of this, so the geometric mean of both times counts. If
    other programs use the cores, less computing also means less waiting for a core.
    """
    now, measured_ms = pipeline(m), 1e3 * m.paces.together_s
    at_least_ms = math.sqrt(measured_ms * iteration_ms(now))
    if m.setting.others_cores > BUSY_CORES:
        computing_s = m.fetching.computing_s
        slower = 1 + m.fetching.delay_s / computing_s if computing_s else 1.0
        stretched = {name: slower * getattr(now, name) for name in ("transform_ms", "collate_ms")}
        now = replace(now, cores=max(now.cores or 1, now.num_workers), **stretched)
        changes = {k: slower * v if k in stretched else v for k, v in changes.items()}
        at_least_ms = measured_ms
    now_ms = max(iteration_ms(now), at_least_ms)
    return min(m.headroom, _ratio(m, now_ms, replace(now, **changes)))  # type: ignore[arg-type]


def even_gain(m: Measurements) -> float:
    """Return the gain without unusually slow fetches, which the model does not have."""
    even = _faster(pipeline(m), 1 / max(1 - m.fetching.slow_time, 1e-9))
    return min(m.headroom, _ratio(m, 1e3 * m.paces.together_s, even))


def pipeline(m: Measurements) -> Pipeline:
    """Return the model of the measured loop."""
    fetching, moving, setting = m.fetching, m.moving, m.setting
    collate_s = min(fetching.collate_s, fetching.computing_s)
    sent_s = max(0.0, moving.sending_s - moving.receiving_s)
    compute_s = m.paces.step_s if m.step.compute_s is None else m.step.compute_s
    return Pipeline(
        read_ms=m.waiting_s * 1e3,
        transform_ms=(fetching.computing_s - collate_s) * 1e3,
        collate_ms=(collate_s + sent_s) * 1e3,
        copy_ms=m.transfer_s * 1e3,
        step_ms=compute_s * 1e3,
        host_ms=(m.host_s + moving.receiving_s) * 1e3,
        num_workers=setting.workers,
        prefetch_factor=setting.prefetch_factor,
        cores=max(1, min(setting.worker_cores, setting.cores)),
        steps=STEPS,
        jitter=0.0,
    )


def iteration_ms(pipeline: Pipeline) -> float:
    """Return the milliseconds between steps in the second half of the simulated loop."""
    steps = compute_spans(simulate(pipeline).spans)
    if not steps:  # the step takes no time
        return max(pipeline.load_ms / max(1, pipeline.num_workers), pipeline.host_ms, 1e-6)
    half = steps[len(steps) // 2 :]
    return max((half[-1].end_ns - half[0].end_ns) / (len(half) - 1) / 1e6, 1e-6)


def _ratio(m: Measurements, now_ms: float, then: Pipeline) -> float:
    """Return the speed-up from `now_ms` per batch to the pipeline `then`, at least 1."""
    start_ms = 1e3 * m.start_up_share_s
    return max(1.0, (now_ms + start_ms) / (iteration_ms(then) + start_ms))


def _faster(now: Pipeline, speedup: float) -> Pipeline:
    names = ("read_ms", "transform_ms", "collate_ms")
    return replace(now, **{name: getattr(now, name) / speedup for name in names})
