"""The same loop on data that fit in the page cache, and on data that do not fit."""

from torch.utils.data import DataLoader

from course_utils.hardware.gpu import get_accelerator
from course_utils.hardware.storage import slow_storage
from course_utils.loading.events import MemmapEvents, pad_collate
from course_utils.stories.lecture import Finding
from course_utils.stories.lecture.programs.loop import busy, train
from course_utils.teaching.notebook import data_path

FILE = "npy/pulses.npy"


def run() -> Finding:
    """Train in the second epoch, when the cache is full."""
    folder, gpu = data_path("events", "S"), get_accelerator(step_ms=15)
    data_mb = (folder / FILE).stat().st_size / 1e6
    traces = {}
    for name, share in ("the data fit", 1.5), ("they do not fit", 0.1):
        storage = slow_storage(folder, "busy Lustre", cache_mb=share * data_mb)
        with storage.open(FILE) as file:  # stands for the first epoch
            file.read()
        events = MemmapEvents(folder, fs=storage)
        loader = DataLoader(events, batch_size=16, shuffle=True, collate_fn=pad_collate)
        traces[name] = train(gpu, loader, steps=30)
    fits, falls = traces.values()
    slower = falls.summary().total_s / fits.summary().total_s
    return Finding(
        f"In the second epoch the GPU computes {busy(fits)} of the time if the data fit in the "
        f"cache, and {busy(falls)} if they do not, which takes {slower:.1f} times as long.",
        traces,
    )
