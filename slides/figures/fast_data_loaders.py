"""Figures of the deck *Fast data loaders*: counted, simulated or emulated when it is built."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from course_utils.hardware.storage import BLOCK, counting_storage, slow_storage
from course_utils.loading.events import FORMATS, EventArrays, colours, open_events
from course_utils.loading.stream import batched, blocks, buffer_shuffle, mixing, shuffled
from course_utils.measure.picture import LOOKS
from course_utils.measure.simulate import Pipeline, simulate
from course_utils.measure.spans import Span
from course_utils.teaching.notebook import data_path
from notebooks.stories.figures import value_bars

POINTS = 24  # no text on a slide is smaller
BLUE, RED, GREEN = "#2a85c4", "#d55e00", "#009e73"
LOOP = Pipeline(read_ms=70, decode_ms=10, step_ms=50, num_workers=2, steps=60)  # L = 80, C = 50
CACHED = 40  # blocks of 32 KiB in the page cache of the cliff
FORMAT_NAMES = ("npy", "hdf5", "tar", "npz", "sqlite", "root", "parquet")


@contextmanager
def slide(width: float, height: float, **options: Any) -> Iterator[tuple[Figure, list[Axes]]]:
    """Give a figure of that many inches on the slide, 13.3 wide, and its panels."""
    kinds = (
        "font.size axes.titlesize axes.labelsize legend.fontsize xtick.labelsize ytick.labelsize"
    )
    sizes: Any = dict.fromkeys(kinds.split(), POINTS)
    with plt.rc_context(sizes):
        rows, columns = options.pop("rows", 1), options.pop("columns", 1)
        figure, panels = plt.subplots(
            rows, columns, squeeze=False, figsize=(width, height), layout="constrained", **options
        )
        yield figure, list(panels.flat)
    plt.close(figure)


# ---- why a GPU waits ----


def hit_percent(data_over_cache: float, *, in_order: bool) -> float:
    """Count what a full page cache still has, of data read epoch after epoch."""
    rng, numbers = random.Random(0), list(range(round(data_over_cache * CACHED)))
    with TemporaryDirectory() as folder:
        (Path(folder) / "data").write_bytes(bytes(len(numbers) * BLOCK))
        storage = slow_storage(folder, "laptop SSD", cache_mb=CACHED * BLOCK / 1e6)
        with storage.open("data") as file:
            for epoch in range(12):
                if epoch == 2:  # before, the cache fills
                    storage.reset_counters()
                for number in numbers if in_order else rng.sample(numbers, len(numbers)):
                    file.seek(number * BLOCK)
                    file.read(1)
    return 100 * storage.counters().hit_share


def cliff() -> Figure:
    """Draw which share of the reads finds its bytes in the cache, over the size of the data."""
    sizes = [0.5, 0.8, 0.9, 1.0, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 2.5]
    with slide(5.9, 4.5) as (figure, (panel,)):
        for name, in_order, look in ("in order", True, "o-"), ("shuffled", False, "s--"):
            found = [hit_percent(size, in_order=in_order) for size in sizes]
            colour = RED if in_order else BLUE
            panel.plot(sizes, found, look, color=colour, markersize=10, label=name)
        panel.set(xlabel="data / page cache", ylabel="found there (%)", ylim=(-5, 105))
        panel.set_xticks((0.5, 1, 1.5, 2, 2.5))
        panel.legend()
    return figure


def stages() -> Figure:
    """Draw the five stages of a batch and the step, in the colours of the timelines."""
    words = {
        "read": "bytes from\nthe storage",
        "decode": "bytes to\nnumbers",
        "transform": "crop, turn,\nnormalise",
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
            box.set(facecolor=look.colour, edgecolor=look.edge(dark=False), linewidth=2)
            panel.add_patch(box)
            panel.text(place + 0.5, 1.4, stage, color=look.text, ha="center", va="center")
            panel.text(place + 0.5, 0.85, word, ha="center", va="top", linespacing=1.3)
        panel.set(xlim=(0, len(words)), ylim=(0.1, 1.9))
        panel.axis("off")
    return figure


def model() -> Figure:
    """Draw the steps per second over the workers: four letters, and simulated loops as points."""
    workers = range(5)
    with slide(5.9, 5.0) as (figure, (panel,)):
        said = [1000 / (130 if w == 0 else max(50, 80 / w)) for w in workers]
        found = [_rate(replace(LOOP, num_workers=w)) for w in workers]
        panel.plot(workers, said, "-", color="gray", label="four letters")
        panel.plot(workers, found, "o", color=BLUE, markersize=12, label="simulated")
        panel.set(xlabel="workers", ylabel="steps per second", ylim=(0, 23), xticks=workers)
        panel.legend(loc="lower right")
    return figure


def _rate(pipeline: Pipeline) -> float:
    """Return the steps per second of the second half of a simulated loop."""
    ends = sorted(span.end_ns for span in simulate(pipeline).spans if span.lane == "gpu")
    half = ends[len(ends) // 2 - 1 :]
    return (len(half) - 1) / (half[-1] - half[0]) * 1e9


def exposes() -> Figure:
    """Draw how long the GPU waits after each of five changes of a loop that was fed."""
    changes: Mapping[str, Mapping[str, Any]] = {
        "today": {},
        "a faster GPU": {"step_ms": 20},
        "a smaller model": {"step_ms": 30},
        "mixed precision": {"step_ms": 25},
        "a second GPU, same cores": {"num_workers": 1},
        "a larger model": {"step_ms": 150},
    }
    loops = {name: replace(LOOP, **change) for name, change in changes.items()}
    waits = {name: 100 - loop.step_ms * _rate(loop) / 10 for name, loop in loops.items()}
    with slide(12.0, 4.4) as (figure, (panel,)):
        colour = [RED if wait > 20 else BLUE for wait in waits.values()]
        value_bars(panel, waits, "{:.0f} %".format, color=colour)
        panel.set(xlabel="the GPU waits, start aside (simulated)", xticks=[])
    return figure


# ---- measure ----


def smi() -> Figure:
    """Draw what the panel of an emulated GPU says of three trainings, and what it does not."""
    shown = {
        "one multiprocessor\nof 82 is at work": _panel(kernels=1 / 82),
        "all are at work": _panel(kernels=1.0),
        "all, but half of the\ntime it waits for data": _panel(kernels=1.0, pause=True),
    }
    rows = {
        "GPU-Util": [one.gpu_util for one in shown.values()],
        "power": [100 * one.power_w / one.max_power_w for one in shown.values()],
        "at work": [100 * one.sm_active for one in shown.values()],
    }
    with slide(12.4, 4.7) as (figure, (panel,)):
        looks = ((RED, ""), (BLUE, "//"), (GREEN, ".."))
        for number, ((name, found), (colour, hatch)) in enumerate(
            zip(rows.items(), looks, strict=True)
        ):
            places = [place + 0.27 * (number - 1) for place in range(len(shown))]
            drawn = panel.barh(places, found, 0.25, color=colour, hatch=hatch, label=name)
            panel.bar_label(drawn, [f"{value:.0f} %" for value in found], padding=6)
        panel.set(yticks=range(len(shown)), yticklabels=shown, xticks=[], xlim=(0, 185))
        panel.invert_yaxis()
        panel.legend(loc="center right", title="emulated")
    return figure


def _panel(*, kernels: float, pause: bool = False) -> Any:
    """Return nvidia-smi's panel after seconds of kernels that use a share of an emulated GPU."""
    import torch

    from course_utils.hardware.gpu import timed_accelerator

    gpu, clock = timed_accelerator("RTX 3090", emulate=True)
    batch = gpu.upload({"x": torch.zeros(8)})
    for _ in range(60):
        gpu.step(batch, ms=50, occupancy=kernels)
        gpu.synchronize()
        if pause:
            clock.sleep_until(clock() + 50_000_000)
    return gpu.smi()


def three_runs() -> Figure:
    """Draw the three rates of two loops: what limits each is read off."""
    loops = {
        "limited by its loader": replace(LOOP, read_ms=150, step_ms=30),
        "GPU-bound: leave it alone": replace(LOOP, read_ms=30, step_ms=60),
    }
    with slide(12.4, 4.0, columns=2) as (figure, panels):
        for panel, (title, loop) in zip(panels, loops.items(), strict=True):
            rates = {
                "loader alone": 1000 * loop.num_workers / loop.load_ms,
                "step alone": 1000 / loop.step_ms,
                "together": _rate(loop),
            }
            value_bars(panel, rates, "{:.0f}".format, color=["gray", "gray", RED])
            panel.set(title=title, xticks=[], xlabel="batches per second")
        panels[1].set_yticklabels([])
    return figure


def stopwatch() -> Figure:
    """Draw which line of a loop gets the time of an emulated GPU, with and without `item()`."""
    found = {"with item()": _lines(read_loss=True), "without": _lines(read_loss=False)}
    with slide(12.4, 3.9, columns=2, sharey=True) as (figure, panels):
        for panel, (title, lines) in zip(panels, found.items(), strict=True):
            value_bars(panel, lines, "{:.0f} ms".format, color=BLUE)
            panel.set(title=title, xticks=[], xlim=(0, 55))
    return figure


def _lines(*, read_loss: bool, steps: int = 30) -> dict[str, float]:
    """Return the milliseconds per step that a stopwatch gives each of three lines."""
    import torch

    from course_utils.hardware.gpu import timed_accelerator

    gpu, clock = timed_accelerator("RTX 3090", step_ms=40, emulate=True)
    batch, spent = {"x": torch.zeros(60_000)}, np.zeros(3)
    for _ in range(steps):
        marks = [clock()]
        on_gpu = gpu.upload(batch)
        marks.append(clock())
        loss = gpu.step(on_gpu)
        marks.append(clock())
        if read_loss:
            loss.item()
        spent += np.diff([*marks, clock()])
    names = "batch = upload(batch)", "loss = step(batch)", "loss.item()"
    return dict(zip(names, spent / steps / 1e6, strict=True))


# ---- load ----


def worker_processes() -> Figure:
    """Draw the loop and two workers as processes, each with a dataset of its own."""
    with slide(12.4, 4.2) as (figure, (panel,)):
        _process(panel, 0.1, 1.0, "your loop", "dataset")
        for row, name in (1.95, "worker 0"), (0.05, "worker 1"):
            _process(panel, 8.2, row, name, "copy of it")
            middle = row + 0.75
            arrow = {"arrowstyle": "->", "color": plt.rcParams["text.color"], "lw": 3}
            out, back = (4.0, 1.95 + 0.1 * (row > 1)), (4.0, 1.5 + 0.1 * (row > 1))
            panel.annotate("", (8.1, middle + 0.3), out, arrowprops=arrow)
            panel.annotate("", back, (8.1, middle - 0.2), arrowprops=arrow)
        panel.text(6.05, 2.95, "numbers of samples", ha="center")
        panel.text(6.05, 0.25, "finished batches", ha="center")
        panel.set(xlim=(0, 12.2), ylim=(0, 3.6))
        panel.axis("off")
    return figure


def _process(panel: Axes, left: float, bottom: float, name: str, dataset: str) -> None:
    box = FancyBboxPatch((left, bottom), 3.8, 1.55, boxstyle="round,pad=0,rounding_size=0.1")
    panel.add_patch(box)
    box.set(facecolor="none", edgecolor=plt.rcParams["text.color"], linewidth=3)
    inner = FancyBboxPatch((left + 0.5, bottom + 0.15), 2.8, 0.6, boxstyle="round,pad=0")
    inner.set(facecolor=LOOKS["collate"].colour, edgecolor="none")
    panel.add_patch(inner)
    panel.text(left + 1.9, bottom + 1.15, name, ha="center", va="center", weight="bold")
    panel.text(left + 1.9, bottom + 0.45, dataset, color="black", ha="center", va="center")


def workers() -> Figure:
    """Draw the rates of simulated loaders over their workers: reading waits, decoding computes."""
    counts = (1, 2, 4, 8, 12)
    kinds = {
        "decoding on 2 cores": (Pipeline(decode_ms=80, cores=2), RED, "s--", 2.3),
        "reading, 8\nat a time": (
            Pipeline(read_ms=80, storage_streams=8), BLUE, "o-", 4.6
        ),
    }  # fmt: skip
    with slide(5.9, 4.5) as (figure, (panel,)):
        for name, (loop, colour, look, height) in kinds.items():
            busy = replace(loop, step_ms=1, steps=96)
            rates = [_rate(replace(busy, num_workers=count)) for count in counts]
            panel.plot(counts, np.array(rates) / rates[0], look, color=colour, markersize=10)
            panel.text(12, height, name, ha="right")
        panel.set(xlabel="workers", ylabel="times as fast as one", xticks=counts, ylim=(0, 9))
    return figure


def duplicates() -> Figure:
    """Draw what PolarBERT's dataset served of 1,024 events, and how many of these differ."""
    served = {1: (960, 960), 2: (1920, 999), 4: (3840, 1015)}  # claim fast-duplicates
    with slide(5.9, 4.5) as (figure, (panel,)):
        for shift, name, colour, hatch in (-0.2, "served", RED, "//"), (0.2, "distinct", BLUE, ""):
            counts = [pair[shift > 0] for pair in served.values()]
            places = np.arange(len(served)) + shift
            drawn = panel.barh(places, counts, 0.38, color=colour, hatch=hatch, label=name)
            panel.bar_label(drawn, [f"{count:,}" for count in counts], padding=6)
        panel.set(yticks=range(len(served)), yticklabels=map(str, served), ylabel="workers")
        panel.set(xlim=(0, 5100), xticks=[])
        panel.invert_yaxis()
        panel.legend(loc="upper right")
    return figure


def shuffles() -> Figure:
    """Draw for four ways to shuffle a sorted file who sits with whom in a batch."""
    count, rng = 2_000, np.random.default_rng(0)
    energy = np.sort(np.log10(1 / rng.uniform(1e-6, 1e-2, count)))  # E^-2, as productions write it
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
            panel.imshow(mixed.together, cmap=colours(), vmin=0, vmax=3, aspect="auto")
            panel.set(xticks=[], yticks=[], title=f"{name}\n{mixed.ratio:.1f} × ideal")
    return figure


def formats() -> Figure:
    """Draw how many bytes each format reads for each byte of one event out of 500."""
    found = {FORMATS[name].title: read for name, read in amplifications().items()}
    with slide(5.9, 4.5) as (figure, (panel,)):
        colour = [RED if read > 10 else BLUE for read in found.values()]
        value_bars(panel, found, lambda read: f"{read:.0f}" if read > 9.5 else f"{read:.1f}")
        for bar, one in zip(panel.patches, colour, strict=True):
            bar.set_color(one)
        panel.set(xscale="log", xlim=(0.7, 1500), xticks=[], xlabel="bytes read per byte")
        panel.minorticks_off()
    return figure


def amplifications() -> dict[str, float]:
    """Count for each format the bytes read for each byte of one event, over 12 of them."""
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
            dataset[0]  # opens what is opened once
            total = 0
            for one in chosen:
                storage.drop_caches()
                storage.reset_counters()
                dataset.__getitems__([one])
                total += storage.counters().bytes_read
            read[name] = total / wanted
    return dict(sorted(read.items(), key=lambda pair: pair[1]))


# ---- near the GPU ----


def cache_policies() -> Figure:
    """Draw what is found in a cache that throws out what is oldest, and in one that keeps."""
    sizes = [0.5, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0]
    evicts = [hit_percent(size, in_order=True) for size in sizes]
    keeps = [100 * min(1.0, 1 / size) for size in sizes]
    with slide(5.9, 5.2) as (figure, (panel,)):
        panel.plot(sizes, keeps, "s-", color=BLUE, markersize=10)
        panel.plot(sizes, evicts, "o--", color=RED, markersize=10)
        panel.text(1.6, 70, "never evicts")
        panel.text(1.3, 8, "evicts the oldest")
        panel.set(xlabel="data / cache", ylabel="found in the cache (%)", ylim=(-5, 105))
    return figure


def bus() -> Figure:
    """Draw how long 64 photographs take over the bus of an emulated RTX 3090."""
    import torch

    kinds = {
        "crops of 224², float32": torch.zeros(64, 3, 224, 224),
        "frames of 256², uint8": torch.zeros(64, 3, 256, 256, dtype=torch.uint8),
        "crops of 224², uint8": torch.zeros(64, 3, 224, 224, dtype=torch.uint8),
    }
    times = {name: _copy_ms(batch)[1] for name, batch in kinds.items()}
    with slide(12.4, 2.9) as (figure, (panel,)):
        value_bars(panel, times, "{:.2f} ms".format, color=LOOKS["transfer"].colour)
        panel.set(xticks=[], xlabel="over the bus, pinned (emulated RTX 3090)")
    return figure


def copies() -> Figure:
    """Draw for four kinds of copies when the program goes on, and when the batch is there."""
    import torch

    images = torch.zeros(160, 3, 224, 224, dtype=torch.uint8)
    kinds = {
        "pageable": {"pinned": False, "non_blocking": False},
        "pageable, non_blocking": {"pinned": False, "non_blocking": True},
        "pinned": {"pinned": True, "non_blocking": False},
        "pinned, non_blocking": {"pinned": True, "non_blocking": True},
    }
    times = {name: _copy_ms(images, **kind) for name, kind in kinds.items()}
    held, there = zip(*times.values(), strict=True)
    with slide(12.4, 4.4) as (figure, (panel,)):
        whole = panel.barh(list(times), there, color="none", hatch="//", label="batch is there")
        for bar in whole:
            bar.set(edgecolor=BLUE, linewidth=2)
        panel.barh(list(times), held, color=RED, height=0.4, label="program goes on")
        panel.set(xlabel="ms until … (emulated RTX 3090, 24 MB)", xlim=(0, 3.4))
        panel.invert_yaxis()
        panel.legend(loc="lower right")
    return figure


def _copy_ms(batch: Any, *, pinned: bool = True, non_blocking: bool = True) -> tuple[float, float]:
    """Return the ms until the program goes on, and until the batch is there."""
    from course_utils.hardware.gpu import timed_accelerator

    gpu, clock = timed_accelerator("RTX 3090", emulate=True)
    source = gpu.pin(batch) if pinned else batch
    gpu.upload(source)  # also makes room for it
    gpu.synchronize()
    start = clock()
    gpu.upload(source, non_blocking=non_blocking)
    goes_on = clock()
    gpu.synchronize()
    return (goes_on - start) / 1e6, (clock() - start) / 1e6


def race() -> Figure:
    """Draw copies and steps of three designs on an emulated GPU, and which steps read garbage."""
    designs = {
        "one queue": _default_stream,
        "two, and\nnobody waits": _side_stream(wait=False),
        "two, and\nan event": _side_stream(wait=True),
    }
    with slide(12.4, 5.3, rows=3, sharex=True) as (figure, panels):
        for panel, (name, design) in zip(panels, designs.items(), strict=True):
            spans, right = _train(design)
            for span in spans:
                _draw_span(panel, span, wrong=span.lane == "gpu" and not right[span.batch])
            panel.set(yticks=(0, 1), yticklabels=("steps", "copies"), ylim=(-0.5, 1.5))
            panel.set_ylabel(name, rotation=0, ha="right", va="center", labelpad=10)
            panel.set(xticks=[])
            panel.spines[:].set_visible(False)
        panels[-1].set_xlabel("time → (emulated; crossed: computed with garbage)")
    return figure


def _default_stream(gpu: Any, batches: Sequence[Any]) -> Iterator[Any]:
    before = None
    for batch in batches:
        ready = gpu.upload(batch, non_blocking=True)
        if before is not None:
            yield before
        before = ready
    yield before


def _side_stream(*, wait: bool) -> Callable[[Any, Sequence[Any]], Iterator[Any]]:
    from notebooks.stories.prefetchers import SideStream

    return lambda gpu, batches: iter(SideStream(batches, gpu, wait=wait))


def _train(design: Callable[[Any, Sequence[Any]], Iterator[Any]]) -> tuple[list[Span], list[bool]]:
    """Return the spans of six steps on an emulated GPU, and which of them read their batch."""
    import torch

    from course_utils.hardware.gpu import checksum, timed_accelerator
    from course_utils.measure.trace import record

    gpu, clock = timed_accelerator("RTX 3090", step_ms=0.3, emulate=True)
    rows = torch.arange(6, dtype=torch.float32)[:, None] + 1
    batches = list(gpu.pinned(row.expand(1_200_000).clone() for row in rows))
    with record(clock=clock) as trace:
        found = [gpu.step(batch).item() for batch in design(gpu, batches)]
    wanted = [checksum([batch]).item() for batch in batches]
    shown = [span for span in trace.spans if span.lane in ("copy", "gpu")]
    return shown, [a == b for a, b in zip(found, wanted, strict=True)]


def _draw_span(panel: Axes, span: Span, *, wrong: bool) -> None:
    look = LOOKS[span.stage]
    height, row = 0.8, 0 if span.lane == "gpu" else 1
    bar = panel.barh(row, span.duration_ns / 1e6, height, left=span.start_ns / 1e6)[0]
    bar.set(
        facecolor=look.colour, edgecolor="black" if wrong else look.edge(dark=False), linewidth=2
    )
    bar.set_hatch("xx" if wrong else "")


# ---- many GPUs, restarts, money ----


def shares() -> Figure:
    """Draw which samples `DistributedSampler` gives each of four ranks, out of ten."""
    from torch.utils.data import DistributedSampler

    met: set[int] = set()
    with slide(5.9, 4.6) as (figure, (panel,)):
        samplers = [DistributedSampler(range(10), 4, rank) for rank in range(4)]  # type: ignore[arg-type, var-annotated]
        for place, samples in enumerate(zip(*samplers, strict=True)):
            for rank, sample in enumerate(samples):
                again = sample in met
                met.add(sample)
                bar = panel.barh(rank, 0.9, left=place + 0.05, color=RED if again else "#56b4e9")
                bar[0].set(edgecolor="white", hatch="///" if again else "")
                behind = {"facecolor": bar[0].get_facecolor(), "edgecolor": "none", "pad": 4}
                number = panel.text(place + 0.5, rank, str(sample), ha="center", va="center")
                number.set(color="black", bbox=behind)
        panel.set(yticks=range(4), yticklabels=[f"rank {r}" for r in range(4)], xticks=[])
        panel.set(xlabel="hatched: served again")
        panel.invert_yaxis()
        panel.spines[:].set_visible(False)
    return figure


def slowest() -> Figure:
    """Draw four steps of three ranks that meet after each; the third one reads from afar."""
    loads, step, turns = (10, 10, 45), 20, 4
    with slide(12.4, 3.9) as (figure, (panel,)):
        for rank, load in enumerate(loads):
            for turn in range(turns):
                start = turn * (max(loads) + step)
                rest = max(loads) - load
                parts = (("read", load), ("compute", step), ("wait", rest))
                for stage, length in parts:
                    look = LOOKS[stage]
                    label = stage if (rank, turn) == (0, 0) else None
                    bar = panel.barh(rank, length, 0.7, left=start, label=label)[0]
                    bar.set(facecolor=look.colour, edgecolor=look.edge(dark=False))
                    bar.set(alpha=0.5 if stage == "wait" else 1.0)
                    start += length
        panel.legend(loc="lower center", ncols=3, bbox_to_anchor=(0.5, 1.0), frameon=False)
        panel.set(yticks=range(len(loads)), xticks=[], xlabel="time →")
        panel.set_yticklabels(["rank 0", "rank 1", "rank 2, from\na file server"])
        panel.invert_yaxis()
        panel.spines[:].set_visible(False)
    return figure


def useful_hour() -> Figure:
    """Draw the price of an hour in which a GPU works, where it costs 3 dollars an hour."""
    busy = np.linspace(0.15, 1, 100)
    with slide(5.9, 5.0) as (figure, (panel,)):
        panel.plot(100 * busy, 3 / busy, color="gray")
        for share, colour in (0.3, RED), (0.8, GREEN):
            panel.plot(100 * share, 3 / share, "o", color=colour, markersize=14)
            panel.text(100 * share + 4, 3 / share + 0.7, rf"\${3 / share:.2f}")
        panel.set(xlabel="GPU busy (%)", ylabel="$ per useful hour", ylim=(0, 21), xlim=(10, 105))
        panel.set(xticks=(30, 80), yticks=(0, 5, 10, 15, 20))
    return figure
