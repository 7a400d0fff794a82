"""The same loop on data that fit in the page cache, and on data that do not."""

import random

from torch.utils.data import DataLoader

from course_stories.lecture import Finding
from course_stories.lecture.programs.loop import busy, train
from course_utils.hardware.gpu import get_accelerator
from course_utils.hardware.storage import BLOCK, slow_storage
from course_utils.loading.events import MemmapEvents, pad_collate
from course_utils.teaching.notebook import data_path
from keepfed.words import percent

FILE = "npy/pulses.npy"
BLOCKS = 20  # that fit in the cache of the table


def run() -> Finding:
    """Train in the second epoch: what fits is in the cache by then."""
    folder, gpu = data_path("events", "S"), get_accelerator(step_ms=15)
    data_mb = (folder / FILE).stat().st_size / 1e6
    traces = {}
    for name, share in ("the data fit", 1.5), ("they do not fit", 0.1):
        storage = slow_storage(folder, "busy Lustre", cache_mb=share * data_mb)
        with storage.open(FILE) as file:  # the first epoch, in one go
            file.read()
        events = MemmapEvents(folder, fs=storage)
        loader = DataLoader(events, batch_size=16, shuffle=True, collate_fn=pad_collate)
        traces[name] = train(gpu, loader, steps=30)
    fits, falls = traces.values()
    slower = falls.summary().total_s / fits.summary().total_s
    sizes = 0.9, 1.0, 1.1, 1.5, 2.0
    return Finding(
        f"In the second epoch the GPU computes {busy(fits)} of the time if the data fit in the "
        f"cache, and {busy(falls)} if they do not: {slower:.1f} times as long. Data that are read "
        "in the same order in each epoch fall off at once, shuffled ones step by step.",
        traces,
        [
            ["data / cache", *(f"{size:g}" for size in sizes)],
            ["found in it, in order", *(percent(hit_share(size, False)) for size in sizes)],
            ["found in it, shuffled", *(percent(hit_share(size, True)) for size in sizes)],
        ],
    )


def hit_share(size: float, shuffled: bool) -> float:
    """Return the share of reads that find their block in a cache; the data are `size` times it."""
    storage = slow_storage(data_path("events", "S"), "laptop SSD", cache_mb=BLOCKS * BLOCK / 1e6)
    blocks, rng = list(range(round(size * BLOCKS))), random.Random(0)
    with storage.open(FILE) as file:
        for epoch in range(8):
            if epoch == 2:  # before that the cache fills
                storage.reset_counters()
            for block in rng.sample(blocks, len(blocks)) if shuffled else blocks:
                file.seek(block * BLOCK)
                file.read(1)
    return storage.counters().hit_share
