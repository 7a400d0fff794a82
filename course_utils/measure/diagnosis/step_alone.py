"""Run the step alone, on batches that lie ready: the pace of an infinitely fast loader."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from course_utils.measure.diagnosis.runs import Run, Step, Turn, is_enough
from course_utils.measure.diagnosis.weigh import copy_s
from course_utils.measure.process import delay_s
from course_utils.measure.trace import Trace, record

WARM_UP = 3  # steps that also pay for allocations and the choice of kernels


def run_step(
    step: Step, batches: Sequence[Any], *, seconds: float, synchronize: Callable[[], Any] | None
) -> Run:
    """Run `step` alone on a few batches, over and over, until the device has done it all."""
    started = time.perf_counter()
    with record() as trace:
        result = None
        for number in range(WARM_UP):
            result = step(copied(batches[number % len(batches)]))
            if time.perf_counter() - started > seconds / 2:
                break
        wait_for_device(result, trace, synchronize)
    with record() as trace:
        run = Run(trace, starts=[time.perf_counter()])
        number = 0
        while not run.turns or not (
            time.perf_counter() - started > seconds or (number % 8 == 0 and is_enough(run))
        ):
            asked = time.perf_counter()
            batch = copied(batches[number % len(batches)])
            got = time.perf_counter()
            trace.batch = number
            result = step(batch)
            done, cpu, delay = time.perf_counter(), time.process_time(), delay_s()
            run.turns.append(Turn(0, number, asked, got, done, cpu, delay))
            number += 1
        wait_for_device(result, trace, synchronize)
        last = run.turns[-1]
        run.turns[-1] = last._replace(done=time.perf_counter())
    if device := torch.accelerator.current_accelerator(check_available=True):
        run.copy_s = copy_s(batches[0], device)
    return run


def wait_for_device(result: Any, trace: Trace, synchronize: Callable[[], Any] | None) -> None:
    """Return when the device has done what it was given.

    What a step returns may be a loss to wait for; an emulated device writes down when it will have
    finished.
    """
    if synchronize is not None:
        synchronize()
        return
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
    item = getattr(result, "item", None)
    if callable(item) and getattr(result, "numel", lambda: 1)() == 1:
        item()
    last_ns = max((span.end_ns for span in trace._spans), default=0)
    time.sleep(max(0, last_ns - time.perf_counter_ns()) / 1e9)


def copied(batch: Any) -> Any:
    """Return `batch` in containers of its own, which a step may change; tensors are the same."""
    if type(batch) is dict:
        return {key: copied(value) for key, value in batch.items()}
    if type(batch) is list:
        return [copied(part) for part in batch]
    return batch
