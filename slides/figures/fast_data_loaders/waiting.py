"""Figures of the reasons why a GPU waits: caches, stages, workers and shorter steps."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from course_utils.hardware.storage import BLOCK, slow_storage
from course_utils.stories.figures import value_bars
from keepfed.measure.picture import LOOKS
from keepfed.palette import BAD, MEASURED
from slides.figures.fast_data_loaders.drawing import LOOP, rate, slide

CACHED = 40  # blocks of 32 KiB in the page cache of the cliff


def cliff() -> Figure:
    """Draw the hit share of a page cache over the size of the data."""
    sizes = [0.5, 0.8, 0.9, 1.0, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 2.5]
    with slide(5.9, 4.5) as (figure, (panel,)):
        for name, in_order, look in ("in order", True, "o-"), ("shuffled", False, "s--"):
            found = [hit_percent(size, in_order=in_order) for size in sizes]
            panel.plot(sizes, found, look, markersize=10, label=name)
        panel.set(xlabel="data / page cache", ylabel="found in it (%)", ylim=(-5, 105))
        panel.set_xticks((0.5, 1, 1.5, 2, 2.5))
        panel.legend()
    return figure


def hit_percent(data_over_cache: float, *, in_order: bool) -> float:
    """Return the hit share of a full page cache in percent, for data read in each epoch."""
    rng, numbers = random.Random(0), list(range(round(data_over_cache * CACHED)))
    with TemporaryDirectory() as folder:
        (Path(folder) / "data").write_bytes(bytes(len(numbers) * BLOCK))
        storage = slow_storage(folder, "laptop SSD", cache_mb=CACHED * BLOCK / 1e6)
        with storage.open("data") as file:
            for epoch in range(12):
                if epoch == 2:  # the cache is full
                    storage.reset_counters()
                for number in numbers if in_order else rng.sample(numbers, len(numbers)):
                    file.seek(number * BLOCK)
                    file.read(1)
    return 100 * storage.counters().hit_share


def stages() -> Figure:
    """Draw the five stages of a batch and the step in the colors of the timelines."""
    words = {
        "read": "bytes from\nthe storage",
        "decode": "bytes to\nnumbers",
        "transform": "crop, rotate,\nnormalize",
        "collate": "samples to\none batch",
        "transfer": "host to\ndevice",
        "compute": "one step\nof training",
    }
    with slide(12.4, 3.4) as (figure, (panel,)):
        for place, (stage, word) in enumerate(words.items()):
            look = LOOKS[stage]
            box = FancyBboxPatch(
                (place + 0.06, 1), 0.88, 0.8, boxstyle="round,pad=0,rounding_size=0.06"
            )
            box.set(facecolor=look.color, edgecolor=look.edge(dark=False), linewidth=2)
            panel.add_patch(box)
            panel.text(place + 0.5, 1.4, stage, color=look.text, ha="center", va="center")
            panel.text(place + 0.5, 0.85, word, ha="center", va="top", linespacing=1.3)
        panel.set(xlim=(0, len(words)), ylim=(0.1, 1.9))
        panel.axis("off")
    return figure


def model() -> Figure:
    """Draw the steps per second over the workers, from the formula and simulated."""
    workers = range(5)
    with slide(5.9, 5.0) as (figure, (panel,)):
        said = [1000 / (130 if w == 0 else max(50, 80 / w)) for w in workers]
        found = [rate(replace(LOOP, num_workers=w)) for w in workers]
        panel.plot(workers, said, "-", color="gray", label="formula")
        panel.plot(workers, found, "o", color=MEASURED, markersize=12, label="simulated")
        panel.set(xlabel="workers", ylabel="steps per second", ylim=(0, 23), xticks=workers)
        panel.legend(loc="lower right")
    return figure


def exposes() -> Figure:
    """Draw how long the GPU waits after each of five changes of a balanced loop."""
    changes: Mapping[str, Mapping[str, Any]] = {
        "today": {},
        "a faster GPU": {"step_ms": 20},
        "a smaller model": {"step_ms": 30},
        "mixed precision": {"step_ms": 25},
        "a second GPU, same cores": {"num_workers": 1},
        "a larger model": {"step_ms": 150},
    }
    loops = {name: replace(LOOP, **change) for name, change in changes.items()}
    waits = {name: 100 - loop.step_ms * rate(loop) / 10 for name, loop in loops.items()}
    with slide(12.0, 4.4) as (figure, (panel,)):
        color = [BAD if wait > 20 else MEASURED for wait in waits.values()]
        value_bars(panel, waits, "{:.0f} %".format, color=color)
        panel.set(xlabel="the GPU waits, without start-up (simulated)", xticks=[])
    return figure
