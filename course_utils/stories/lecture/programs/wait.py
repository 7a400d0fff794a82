"""A loop that reads one file per event, without workers and with six workers."""

from torch.utils.data import DataLoader, Subset

from course_utils.hardware.gpu import get_accelerator
from course_utils.hardware.storage import slow_storage
from course_utils.loading.events import NpzEvents, pad_collate
from course_utils.stories.lecture import Finding
from course_utils.stories.lecture.programs.loop import train
from course_utils.teaching.notebook import data_path
from keepfed.formatting import percent


def run() -> Finding:
    """Train on the same events twice."""
    folder = data_path("events", "S")
    storage = slow_storage(folder, "busy Lustre", cache_mb=0)
    events = Subset(NpzEvents(folder, fs=storage), range(0, 2000, 4))
    gpu = get_accelerator(step_ms=100)
    traces = {
        name: train(gpu, DataLoader(events, 32, collate_fn=pad_collate, num_workers=workers))
        for name, workers in (("no workers", 0), ("six workers", 6))
    }
    alone, fed = (percent(trace.summary().au) for trace in traces.values())
    return Finding(
        f"After the first step the GPU computes {alone} of the time without workers, and {fed} "
        "with six workers, after they have started. The rest is waiting for files.",
        traces,
    )
