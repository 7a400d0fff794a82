"""Figures of the reasons why a GPU waits: caches, stages, workers and shorter steps."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from course_utils.hardware.storage import BLOCK, slow_storage
from course_utils.paths import recording
from course_utils.stories.figures import value_bars
from keepfed.measure.picture import LOOKS
from keepfed.palette import BAD, GOOD, MEASURED
from slides.figures.fast_data_loaders.drawing import LOOP, rate, slide

CACHED = 40  # blocks of 32 KiB in the page cache of the cliff


def cliff() -> Figure:
    """Draw the hit share over the size of the data: Linux, and a strict cache behind it."""
    with slide(6.3, 4.5) as (figure, (panel,)):
        for order, look, color in ("in order", "o", BAD), ("shuffled", "s", MEASURED):
            sizes, shares = linux(order)
            strict = [hit_percent(size, in_order=order == "in order") for size in sizes]
            panel.plot(sizes, strict, "-", color="gray", label="emulated" * (look == "o"))
            panel.plot(sizes, shares, look, color=color, markersize=11, label=order)
        panel.set(xlabel="data / page cache", ylabel="found in it (%)", ylim=(-5, 105))
        panel.legend()
    return figure


def linux(order: str) -> tuple[list[float], list[float]]:
    """Return sizes of the data, and the percent that Linux found once its cache was full."""
    recorded = json.loads(recording("page_cache.json").read_text("utf-8"))
    return recorded["sizes"], [100 * mean(shares[2:]) for shares in recorded[order]]


def linux_beyond_the_cliff() -> list[int]:
    """Return the percent that Linux finds of 10 % too many data, in order and shuffled."""
    return [round(linux(order)[1][4]) for order in ("in order", "shuffled")]


def ada() -> Figure:
    """Draw the days that Ada planned, those of the larger file, and those that the bar showed."""
    rows = (
        (1, 10, MEASURED, "planned", ""),
        (10, 100, BAD, "the file is ten\ntimes as large", "stays"),
        (100, 78_125 * 111.39 / 8_640, GOOD, "each event takes\nten times as long", "comes back"),
    )
    with slide(12.4, 4.4) as (figure, (panel,)):
        for row, (before, days, color, _, fate) in enumerate(rows):
            panel.barh(row, days - before, 0.62, left=before, color=color)
            panel.text(days * 1.08, row, f"{days:,.0f} days", va="center")
            panel.text((before * days) ** 0.5, row, fate, ha="center", va="center", color="white")
        panel.set(xscale="log", xlim=(1, 4_500), yticks=range(3))
        panel.set_yticklabels([name for *_, name, _ in rows])
        panel.xaxis.set_visible(False)
        panel.invert_yaxis()
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


def price() -> Figure:
    """Draw the price of one hour of work of a GPU that costs 3 dollars an hour."""
    busy = np.linspace(0.15, 1, 100)
    with slide(5.9, 5.0) as (figure, (panel,)):
        panel.plot(100 * busy, 3 / busy, color="gray")
        for share, color in (0.3, BAD), (0.8, GOOD):
            panel.plot(100 * share, 3 / share, "o", color=color, markersize=14)
            panel.text(100 * share + 4, 3 / share + 0.7, rf"\${3 / share:.2f}")
        panel.set(xlabel="GPU busy (%)", ylabel="$ per useful hour", ylim=(0, 21), xticks=(30, 80))
    return figure
