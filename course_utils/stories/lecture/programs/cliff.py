"""The same loop on data that fit in the page cache, and on data that do not fit."""

import random

from torch.utils.data import DataLoader

from course_utils.hardware.gpu import get_accelerator
from course_utils.hardware.storage import BLOCK, slow_storage
from course_utils.loading.events import MemmapEvents, pad_collate
from course_utils.stories.lecture import Finding
from course_utils.stories.lecture.programs.loop import busy, train
from course_utils.teaching.notebook import data_path
from keepfed.formatting import percent

FILE = "npy/pulses.npy"
BLOCKS = 20  # cache size for the table, in blocks


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
    sizes = 0.9, 1.0, 1.1, 1.5, 2.0
    return Finding(
        f"In the second epoch the GPU computes {busy(fits)} of the time if the data fit in the "
        f"cache, and {busy(falls)} if they do not, which takes {slower:.1f} times as long. The hit "
        "rate drops at once if the order is the same in each epoch, and gradually with shuffling.",
        traces,
        [
            ["data / cache", *(f"{size:g}" for size in sizes)],
            ["hit rate, in order", *(percent(hit_share(size, False)) for size in sizes)],
            ["hit rate, shuffled", *(percent(hit_share(size, True)) for size in sizes)],
        ],
    )


def hit_share(size: float, shuffled: bool) -> float:
    """Return the cache hit rate for data that are `size` times as large as the cache."""
    storage = slow_storage(data_path("events", "S"), "laptop SSD", cache_mb=BLOCKS * BLOCK / 1e6)
    blocks, rng = list(range(round(size * BLOCKS))), random.Random(0)
    with storage.open(FILE) as file:
        for epoch in range(8):
            if epoch == 2:  # the cache has filled
                storage.reset_counters()
            for block in rng.sample(blocks, len(blocks)) if shuffled else blocks:
                file.seek(block * BLOCK)
                file.read(1)
    return storage.counters().hit_share
