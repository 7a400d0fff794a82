"""Figures of workers, shuffles and file formats."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from course_utils.hardware.storage import counting_storage
from course_utils.loading.events import FORMATS, EventArrays, colors, open_events
from course_utils.loading.quality import mixing
from course_utils.stories.figures import log_dots
from course_utils.teaching.notebook import data_path
from keepfed.loaders.stream import batched, blocks, buffer_shuffle, shuffled
from keepfed.measure.picture import LOOKS
from keepfed.measure.simulate import Pipeline
from keepfed.palette import BAD, MEASURED
from slides.figures.fast_data_loaders.drawing import rate, slide

FORMAT_NAMES = ("npy", "hdf5", "tar", "npz", "sqlite", "root", "parquet")


def worker_processes() -> Figure:
    """Draw the loop and two workers as processes, each with its own dataset."""
    with slide(12.4, 4.2) as (figure, (panel,)):
        _process(panel, 0.1, 1.0, "your loop", "dataset")
        for row, name in (1.95, "worker 0"), (0.05, "worker 1"):
            _process(panel, 8.2, row, name, "copy of it")
            middle = row + 0.75
            arrow = {"arrowstyle": "->", "color": plt.rcParams["text.color"], "lw": 3}
            out, back = (4.0, 1.95 + 0.1 * (row > 1)), (4.0, 1.5 + 0.1 * (row > 1))
            panel.annotate("", (8.1, middle + 0.3), out, arrowprops=arrow)
            panel.annotate("", back, (8.1, middle - 0.2), arrowprops=arrow)
        panel.text(6.05, 2.95, "sample indices", ha="center")
        panel.text(6.05, 0.25, "finished batches", ha="center")
        panel.set(xlim=(0, 12.2), ylim=(0, 3.6))
        panel.axis("off")
    return figure


def _process(panel: Axes, left: float, bottom: float, name: str, dataset: str) -> None:
    box = FancyBboxPatch((left, bottom), 3.8, 1.55, boxstyle="round,pad=0,rounding_size=0.1")
    panel.add_patch(box)
    box.set(facecolor="none", edgecolor=plt.rcParams["text.color"], linewidth=3)
    inner = FancyBboxPatch((left + 0.5, bottom + 0.15), 2.8, 0.6, boxstyle="round,pad=0")
    inner.set(facecolor=LOOKS["collate"].color, edgecolor="none")
    panel.add_patch(inner)
    panel.text(left + 1.9, bottom + 1.15, name, ha="center", va="center", weight="bold")
    panel.text(left + 1.9, bottom + 0.45, dataset, color="black", ha="center", va="center")


def workers() -> Figure:
    """Draw the rates of simulated loaders that read or decode, over the number of workers."""
    counts = (1, 2, 4, 8, 12)
    kinds = {
        "decoding on 2 cores": (Pipeline(decode_ms=80, cores=2), BAD, "s--", 2.6),
        "reading, 8\nat a time": (
            Pipeline(read_ms=80, storage_streams=8), MEASURED, "o-", 4.6
        ),
    }  # fmt: skip
    with slide(5.9, 4.5) as (figure, (panel,)):
        for name, (loop, color, look, height) in kinds.items():
            busy = replace(loop, step_ms=1, steps=96)
            rates = [rate(replace(busy, num_workers=count)) for count in counts]
            panel.plot(counts, np.array(rates) / rates[0], look, color=color, markersize=10)
            panel.text(12, height, name, ha="right")
        panel.set(xlabel="workers", ylabel="speed-up over one", xticks=counts, ylim=(0, 9))
    return figure


def duplicates() -> Figure:
    """Draw how many of 1,024 events PolarBERT's dataset served, and how many are unique."""
    served = {1: (960, 960), 2: (1920, 999), 4: (3840, 1015)}  # claim fast-duplicates
    with slide(5.9, 4.5) as (figure, (panel,)):
        for shift, name, color, hatch in (
            (-0.2, "served", BAD, "//"),
            (0.2, "distinct", MEASURED, ""),
        ):
            counts = [pair[shift > 0] for pair in served.values()]
            places = np.arange(len(served)) + shift
            drawn = panel.barh(places, counts, 0.38, color=color, hatch=hatch, label=name)
            panel.bar_label(drawn, [f"{count:,}" for count in counts], padding=6)
        panel.set(yticks=range(len(served)), yticklabels=map(str, served), ylabel="workers")
        panel.set(xlim=(0, 5100), xticks=[])
        panel.invert_yaxis()
        panel.legend(loc="upper right")
    return figure


def shuffles() -> Figure:
    """Draw which events of a sorted file share a batch, for four ways to shuffle."""
    count, rng = 2_000, np.random.default_rng(0)
    energy = np.sort(
        np.log10(1 / rng.uniform(1e-6, 1e-2, count))
    )  # E^-2, sorted as in a simulation production
    by_shard = [one for shard in shuffled(blocks(count, 100), rng) for one in shard]
    ways = {
        "in order": range(count),
        "buffer": [*buffer_shuffle(range(count), 200, rng)],
        "shards + buffer": [*buffer_shuffle(by_shard, 200, rng)],
        "all, once": rng.permutation(count),
    }
    with slide(12.4, 3.95, columns=len(ways)) as (figure, panels):
        for panel, (name, order) in zip(panels, ways.items(), strict=True):
            mixed = mixing(batched(order, 32), energy, blocks=20)
            panel.imshow(mixed.co_occurrence, cmap=colors(), vmin=0, vmax=3, aspect="auto")
            panel.set(xticks=[], yticks=[], title=f"{name}\n{mixed.ratio:.1f} × ideal")
    return figure


def formats() -> Figure:
    """Draw the bytes that each format reads per byte of one of 500 events."""
    found = {FORMATS[name].title: read for name, read in amplifications().items()}
    with slide(5.9, 4.5) as (figure, (panel,)):
        color = [BAD if read > 10 else MEASURED for read in found.values()]
        say = lambda read: f"{read:.0f}" if read > 9.5 else f"{read:.1f}"  # noqa: E731
        log_dots(panel, found, "bytes per byte", say, color)
    return figure


def amplifications() -> dict[str, float]:
    """Count the bytes that each format reads per byte of an event, over 12 events."""
    events = EventArrays.load(data_path("events", "S")).take(np.arange(0, 2_000, 4))
    lengths, chosen = np.diff(events.offsets), range(20, 500, 40)
    wanted = 16 * sum(int(lengths[one]) for one in chosen)
    read = {}
    with TemporaryDirectory() as place:
        folder = Path(place)
        events.save(folder)
        for name in FORMAT_NAMES:
            if name != "npy":
                FORMATS[name].write(events, folder / FORMATS[name].entry)
            storage = counting_storage(folder)
            dataset = open_events(folder, name, fs=storage)
            dataset[0]  # exclude the cost of the first open
            total = 0
            for one in chosen:
                storage.drop_caches()
                storage.reset_counters()
                dataset.__getitems__([one])
                total += storage.counters().bytes_read
            read[name] = total / wanted
    return dict(sorted(read.items(), key=lambda pair: pair[1]))
