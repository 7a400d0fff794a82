"""Train on photographs for an epoch, with the augmentation in the workers or on the device."""

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from course_utils.hardware.gpu import Accelerator
from course_utils.loading.images import Augment
from keepfed.loaders.images import Jpegs
from keepfed.measure.trace import Trace, record

BATCH = 16  # its 2 * 2 + 1 float batches fit into the 64 MB that a container has in /dev/shm
STEPS = 32
CLOSE = 1.15  # the paces of two runs on a quiet machine differ by no more
BEGUN = 6  # steps that live on what the workers had ready when the epoch began


def photo_loader(photos: Jpegs) -> DataLoader[tuple[Any, int]]:
    """Return a loader of `STEPS` batches whose two workers are running.

    The photographs come several times over: 200 of them are too few for a steady pace.
    """
    loader: DataLoader[tuple[Any, int]] = DataLoader(
        photos,
        BATCH,
        sampler=[number % len(photos) for number in range(STEPS * BATCH)],
        num_workers=2,
        persistent_workers=True,
        pin_memory=torch.cuda.is_available(),
    )
    with record() as trace:  # persistent workers send spans if their first epoch was recorded
        next(trace.batches(loader))
    return loader


def train_epoch(
    gpu: Accelerator,
    loader: Iterable[Any],
    *,
    step_ms: float,
    augment: Augment | None = None,
    augment_ms: float = 0,
) -> Trace:
    """Return the trace of an epoch of steps; their losses are not read.

    Args:
        gpu: where the steps run.
        loader: gives batches of images and labels.
        step_ms: C.
        augment: done on the device, before each step; None: the workers have done it.
        augment_ms: A, for the emulated device. A real one takes as long as it takes.
    """
    with record() as trace:
        for images, _ in gpu.pinned(trace.batches(loader)):
            batch = gpu.upload(images, non_blocking=True)
            if augment is not None:
                # emulated, values would be computed by the cores of this machine: workers need them
                work = torch.zeros_like if gpu.emulated else augment
                batch = gpu.launch(work, batch, ms=augment_ms)
            gpu.step(batch, ms=step_ms)
        gpu.synchronize()
    return trace


def steady(run: Callable[[], Trace]) -> Trace:
    """Return the trace of `run()` as soon as two have the same pace, of three the middle one.

    Where no two of three agree, say that the machine was too busy to measure.
    """
    traces: list[Trace] = []
    while len(traces) < 3:
        traces = sorted([*traces, run()], key=pace_ms)
        for one, other in pairwise(traces):
            if pace_ms(other) < CLOSE * pace_ms(one):
                return one
    paces = ", ".join(f"{pace_ms(trace):.0f}" for trace in traces)
    print(f"Your machine was busy: three runs took {paces} ms per step. Run this cell again.")
    return traces[1]


def pace_ms(trace: Trace) -> float:
    """Return the milliseconds from the end of a step to the end of the next, first ones left out.

    What the workers have ready when the epoch begins does not count.
    """
    kernels = sorted((span.end_ns, span.batch) for span in trace.spans if span.lane == "gpu")
    done = {batch: end_ns for end_ns, batch in kernels}  # a batch is, with its last kernel
    ends = sorted(done.values())[BEGUN:]
    return (ends[-1] - ends[0]) / (len(ends) - 1) / 1e6


def load_ms(trace: Trace) -> float:
    """Return L: the milliseconds of work that the workers do for a batch."""
    work = [span for span in trace.spans if span.lane.startswith("worker")]
    return sum(span.duration_ns for span in work) / len({span.batch for span in work}) / 1e6


def copy_ms(gpu: Accelerator, batch: Tensor) -> float:
    """Return the milliseconds that `batch` takes over the bus, from pinned memory."""
    pinned = gpu.pin(batch)
    with record() as trace:
        for _ in range(2):  # the first copy also makes room for it
            gpu.upload(pinned)
    return [span.duration_ns for span in trace.spans if span.lane == "copy"][-1] / 1e6
