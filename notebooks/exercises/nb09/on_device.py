"""Check of notebook 09, second part: what a prefetcher does on the device, on an exact clock."""

from __future__ import annotations

from functools import partial
from typing import Any

from course_utils.measure.spans import hidden_share
from course_utils.measure.trace import record
from course_utils.teaching.exercise import expect
from notebooks.exercises.nb09.bench import Bench, Make, within
from notebooks.stories.prefetchers import BATCH_BYTES, Source, make_tensors, sums

RUNS = 20
WAKE_S = 1.0  # by then, a thread that copies beside the step has woken up
SOON_S = 0.1  # by then, a thread that copies too much has done so


def judge_device(make: Make) -> None:
    """Loop on the second GPU of the machine."""
    bench, source = Bench(gpus=2), Source(make_tensors())

    def loop(_: list[Any]) -> None:
        bench.gpus.set_device(1)
        for batch in make(source, bench.gpus):
            if bench.gpus[0].memory_allocated():
                return
            bench.gpus[1].step(batch).item()

    within(loop, "On GPU 1 the loop never ends.", "Ask for the GPU once, in __init__.")
    expect(
        not bench.gpus[0].max_memory_allocated(),
        "The loop runs on GPU 1, and its batches are on GPU 0. The current GPU belongs to a "
        "thread: in another one it is GPU 0.",
        "Ask for it once, in __init__: self.gpu = devices.current().",
    )


def judge_late(make: Make) -> None:
    """Compare checksums, with the losses read at once and at the end."""
    spoilt = 0
    for run in range(RUNS):
        source = Source(make_tensors())
        found = within(
            partial(_epoch, make, source, Bench(), late=run % 2 == 0),
            "With the losses read at the end, the loop never ends.",
            "Do not wait on the host for what the GPU has not begun.",
        )
        spoilt += found != source.checksums()
    expect(
        not spoilt,
        f"Wrong in {spoilt} of {RUNS} epochs, all of them where the losses are read late: the "
        "memory of a batch that Python has dropped is given to the next copy, while a step still "
        "reads it.",
        "At hand-over, for each tensor: tensor.record_stream(gpu.current_stream()).",
    )


def judge_memory(make: Make) -> None:
    """Count the batches on the device while the loop drops its own."""
    for depth in (1, 2):
        bench, source = Bench(), Source(make_tensors())
        within(
            partial(_epoch, make, source, bench, depth=depth, pause=bench.pause(depth + 1, SOON_S)),
            "The loop never ends.",
            "Stop when the loader is through.",
        )
        peak = bench.gpu.max_memory_allocated() / BATCH_BYTES
        expect(
            peak <= depth + 1,
            f"With depth={depth} there are {peak:.0f} batches on the GPU at a time; {depth + 1} "
            "are enough: what the loop works on, and what is copied ahead. Count what waits in "
            "a queue, what a thread has in hand, and the batch that a variable of yours still "
            "holds.",
            "Keep only what is staged, and hand a batch over without keeping it: "
            "yield staged.popleft().",
        )


def judge_overlap(make: Make) -> None:
    """Measure how much of the copying is hidden, without the first copy."""
    bench, source = Bench(), Source(make_tensors())

    def loop(keep: list[Any]) -> float:
        with record(clock=bench.clock) as trace:
            _epoch(make, source, bench, keep, pause=bench.pause(1, WAKE_S))
        copies = [span for span in trace.spans if span.lane == "copy"]
        return hidden_share([span for span in trace.spans if span is not copies[0]])

    share = within(loop, "The loop never ends.", "Stop when the loader is through.")
    expect(
        share >= 0.8,
        f"Behind {share:.0%} of the copying the GPU computes; the target is 80 %. Either copies "
        "and steps share a stream, or a step waits for more than its own copy, or the next "
        "copy is launched only when the loop asks for it.",
        "A stream for the copies, an event for each of them, and stage the next batch before "
        "you yield this one.",
    )


def _epoch(
    make: Make, source: Source, bench: Bench, _keep: list[Any], *, depth: int = 1, **how: Any
) -> list[float]:
    return sums(bench.gpu, make(source, bench.gpus, depth), **how)
