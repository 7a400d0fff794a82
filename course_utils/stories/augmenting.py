"""Photographs augmented in the workers or on the device: the loop, its times and its figures."""

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.utils.data import DataLoader
from torchvision.utils import make_grid

from course_utils.hardware.gpu import Accelerator
from course_utils.stories.figures import drawing
from keepfed.loaders.images import Jpegs
from keepfed.measure.trace import Trace, record

BATCH = 16  # its 2 * 2 + 1 float batches fit into the 64 MB that a container has in /dev/shm
STEPS = 32
CLOSE = 1.15  # largest ratio of the step times of two runs on a quiet machine
BEGUN = 6  # first steps, which use batches prefetched before the epoch


def photo_loader(photos: Jpegs) -> DataLoader[tuple[Any, int]]:
    """Return a loader of `STEPS` batches with two running workers.

    It repeats the photographs, because 200 are too few for a steady step time.
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


def steady(run: Callable[[], Trace]) -> Trace:
    """Repeat `run()` until two traces have about the same step time, and return one of them.

    If no two of three runs agree, print that the machine was busy, and return the middle one.
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
    """Return the mean time between the ends of two steps in ms, without the first steps.

    The first steps use batches that the workers prefetched before the epoch.
    """
    kernels = sorted((span.end_ns, span.batch) for span in trace.spans if span.lane == "gpu")
    done = {batch: end_ns for end_ns, batch in kernels}  # the last kernel of a batch ends it
    ends = sorted(done.values())[BEGUN:]
    return (ends[-1] - ends[0]) / (len(ends) - 1) / 1e6


def load_ms(trace: Trace) -> float:
    """Return L, the time that the workers need for a batch in ms."""
    work = [span for span in trace.spans if span.lane.startswith("worker")]
    return sum(span.duration_ns for span in work) / len({span.batch for span in work}) / 1e6


def copy_ms(gpu: Accelerator, batch: Tensor) -> float:
    """Return the time to copy `batch` from pinned memory to the device in ms."""
    pinned = gpu.pin(batch)
    with record() as trace:
        for _ in range(2):  # the first copy also allocates memory
            gpu.upload(pinned)
    return [span.duration_ns for span in trace.spans if span.lane == "copy"][-1] / 1e6


def show(rows: Mapping[str, Tensor]) -> Figure:
    """Draw named rows of eight images, float 0..1, shape (at least 8, 3, height, width)."""
    with drawing(10, 1.5 * len(rows), rows=len(rows)) as (figure, panels):
        for panel, (name, images) in zip(panels, rows.items(), strict=True):
            panel.imshow(make_grid(images[:8], pad_value=0.5).permute(1, 2, 0).numpy())
            panel.set(title=name, xticks=[], yticks=[], frame_on=False)
    return figure
