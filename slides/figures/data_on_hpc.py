"""The figures of the deck "Data pipelines on HPC"."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_utils.hardware.storage import (
    StoragePreset,
    VirtualClock,
    counting_storage,
    slow_storage,
    storage_preset,
)
from course_utils.loading.quality import mixing
from course_utils.paths import recording
from course_utils.stories.figures import log_dots, value_bars
from keepfed.measure.exchange import load_chrome
from keepfed.measure.picture import LOOKS
from keepfed.palette import BAD, BLUE, GOOD, NEUTRAL, ORANGE


def _slide(height: float, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """Return a figure of the width of a slide, and its panels."""
    figure, panels = plt.subplots(ncols=columns, squeeze=False, figsize=(12.2, height))
    return figure, list(panels.flat)


def _box(panel: Axes, left: float, bottom: float, size: tuple[float, float], text: str) -> None:
    width, height = size
    panel.add_patch(plt.Rectangle((left, bottom), width, height, fc=BLUE, ec="white", lw=2))
    middle = left + width / 2, bottom + height / 2
    panel.text(*middle, text, color="white", ha="center", va="center", weight="bold")


def _bare(panel: Axes, width: float, height: float) -> None:
    panel.set(xlim=(0, width), ylim=(0, height))
    panel.axis("off")


LAYERS = {
    "your Dataset": ("a sample", "torch.profiler, py-spy"),
    "NumPy, h5py, Pillow": ("an array, a chunk", "DFTracer"),
    "system calls": ("bytes at an offset", "Darshan, Recorder, perf"),
    "page cache of the node": ("pages", "/proc/pressure, iotop"),
    "client and network": ("requests to servers", "counters of the center"),
    "servers and their disks": ("blocks", "counters of the center"),
}


def io_stack() -> Figure:
    """Draw the layers from the dataset to the disk, their requests, and their tools."""
    figure, (panel,) = _slide(5.0)
    _bare(panel, 12, len(LAYERS) + 0.7)
    for row, (layer, (asks, seen)) in enumerate(reversed(LAYERS.items())):
        _box(panel, 0, row + 0.06, (4.4, 0.88), layer)
        panel.text(4.7, row + 0.5, asks, va="center")
        panel.text(8.3, row + 0.5, seen, va="center")
    for left, head in ((0, "layer"), (4.7, "requests"), (8.3, "tool")):
        panel.text(left, len(LAYERS) + 0.35, head, va="center", weight="bold")
    return figure


def striped_file() -> Figure:
    """Draw how a parallel file system serves a file from four servers."""
    figure, (panel,) = _slide(5.0)
    _bare(panel, 12, 5.4)
    _box(panel, 0, 2.6, (2.6, 1), "node")
    _box(panel, 4.2, 4.4, (7.6, 0.9), "metadata server: which stripes, where?")
    arrows: dict[str, Any] = {"arrowstyle": "<->", "color": NEUTRAL, "lw": 3}
    panel.annotate("", (4.2, 4.8), (2.0, 3.6), arrowprops=arrows)
    for number, stripes in enumerate(("0  4", "1  5", "2  6", "3  7")):
        left = 4.2 + 1.95 * number
        _box(panel, left, 0.4, (1.75, 1.5), f"server\n{stripes}")
        panel.annotate("", (left + 0.87, 1.9), (2.6, 3.1), arrowprops=arrows)
    panel.text(8, 0.1, "stripes of one file", ha="center", va="center")
    panel.text(2.4, 4.5, "1. open", ha="right", va="center")
    panel.text(2.9, 1.9, "2. read", ha="right", va="center")
    return figure


def _seconds(preset: str, reads: Sequence[tuple[int, int, int]], opens: int) -> float:
    """Return the seconds of `opens` opens and of sequential reads (file, start, size)."""
    with tempfile.TemporaryDirectory() as folder:
        storage = slow_storage(folder, preset, cache_mb=0)
        storage.clock = clock = VirtualClock()
        for _ in range(opens):
            storage.device.look_up(opening=True)
        for file, start, size in reads:
            done = storage.device.reserve(file, start, start + size, size=start + size)
            storage.device.wait(done)
        return clock() / 1e9


EVENTS, EVENT_BYTES = 2_000, 20_000
IN_ORDER = [(0, EVENT_BYTES * event, EVENT_BYTES) for event in range(EVENTS)]
AT_RANDOM = [IN_ORDER[event] for event in np.random.default_rng(0).permutation(EVENTS)]
A_FILE_EACH = [(event, 0, EVENT_BYTES) for event in range(EVENTS)]


def small_files() -> Figure:
    """Draw the time of an epoch on an emulated busy Lustre, from many files and from one."""
    seconds = {
        f"{EVENTS:,} files": _seconds("busy Lustre", A_FILE_EACH, opens=EVENTS),
        "one file, at random": _seconds("busy Lustre", AT_RANDOM, opens=1),
        "one file, in order": _seconds("busy Lustre", IN_ORDER, opens=1),
    }
    figure, (panel,) = _slide(4.6)
    value_bars(panel, seconds, "{:.2g} s".format, color=[BAD, NEUTRAL, GOOD])
    panel.set(xlabel="seconds for an epoch, one reader (emulated busy Lustre)")
    return figure


def npz_pieces() -> Figure:
    """Count the requests for one array of 25 MiB in three file formats."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        volume = np.zeros((25, 512, 512), np.float32)
        np.save(folder / "volume.npy", volume)
        np.savez(folder / "volume.npz", volume=volume)
        with h5py.File(folder / "volume.h5", "w") as file:
            file["volume"] = volume
        storage = counting_storage(folder)
        ways: Mapping[str, Any] = {
            "npz": lambda file: np.load(file)["volume"],
            "npy": np.load,
            "HDF5": lambda file: h5py.File(file)["volume"][:],
            "npz, complete file first": lambda file: np.load(io.BytesIO(file.read()))["volume"],
        }
        asked = {}
        for way, read in ways.items():
            storage.reset_counters()
            with storage.open(f"volume.{'h5' if way == 'HDF5' else way[:3]}") as file:
                read(file)
            asked[way] = storage.counters().requests
    figure, (panel,) = _slide(4.8)
    label = "requests to a remote storage"
    log_dots(panel, asked, label, "{:,.0f}".format, [BAD, BAD, GOOD, GOOD])
    return figure


CLUSTERS, CLUSTER_EVENTS, BATCH = 256, 1_000, 256  # half of the clusters contain only signal


def scatter(in_memory: int) -> float:
    """Return the scatter of the signal share of batches, compared with a full shuffle.

    Args:
        in_memory: Number of clusters that are read in random order and mixed in memory.
    """
    rng, events, ratios = np.random.default_rng(0), np.arange(CLUSTERS * CLUSTER_EVENTS), []
    for _ in range(5):  # epochs
        clusters = rng.permutation(events.reshape(CLUSTERS, CLUSTER_EVENTS))
        order = rng.permuted(clusters.reshape(-1, in_memory * CLUSTER_EVENTS), axis=1)
        batches = list(order.reshape(-1, BATCH))
        ratios.append(mixing(batches, events < len(events) // 2).ratio)
    return float(np.mean(ratios))


def clusters() -> Figure:
    """Draw how well a batch is mixed, over the events in memory, with the requests of an epoch."""
    counts = [2**power for power in range(9)]
    found = [scatter(count) for count in counts]
    figure, (panel,) = _slide(4.6)
    panel.loglog(np.multiply(counts, CLUSTER_EVENTS), found, "o-", color=BLUE)
    panel.plot(BATCH, 1, "s", color=BAD, ms=11)
    panel.text(
        BATCH * 1.25, 1, f"random events: {CLUSTERS * CLUSTER_EVENTS:,} requests", va="center"
    )
    panel.text(8_000, 12, f"whole clusters, mixed: {CLUSTERS} requests", va="center")
    panel.set(xlabel="events in memory (log)", ylabel="scatter, × ideal (log)", ylim=(0.7, 25))
    panel.set(yticks=[1, 2, 4, 8, 16], yticklabels=["1", "2", "4", "8", "16"])
    panel.xaxis.set_major_formatter("{x:,.0f}")
    panel.minorticks_off()
    return figure


# assumptions of the figure, not of a machine: one shared line, and a disk in each node
SHARED = replace(
    storage_preset("busy Lustre"),
    name="shared file system",
    mb_s=20_000,
    stream_mb_s=2_000,
    requests_at_once=256,
    cache_mb=0,
)
LOCAL = replace(storage_preset("laptop SSD"), name="disk of the node", cache_mb=0)
READ, READS = 16_000_000, 12  # bytes per read, and reads per node


def _gb_per_s(preset: StoragePreset, nodes: int) -> float:
    """Return the total throughput of `nodes` nodes that each read one piece at a time."""
    with tempfile.TemporaryDirectory() as folder:
        storage, clocks = slow_storage(folder, preset), [VirtualClock() for _ in range(nodes)]
        for read in range(READS * nodes):
            storage.clock = min(clocks, key=lambda clock: clock())
            done = storage.device.reserve(read, 0, READ, size=READ)
            storage.device.wait(done)
        return READS * nodes * READ / max(clock() for clock in clocks)


def shared_and_local() -> Figure:
    """Draw the total throughput of nodes from shared storage and from local disks."""
    nodes = (1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 56, 64)
    one = _gb_per_s(LOCAL, 1)
    figure, (panel,) = _slide(4.1)
    panel.plot(nodes, [one * count for count in nodes], "o-", color=GOOD, lw=3)
    panel.plot(nodes, [_gb_per_s(SHARED, count) for count in nodes], "s--", color=BAD, lw=3)
    panel.text(38, one * 38 + 14, "a disk in each node", ha="right")
    panel.text(64, 30, "one shared file system", ha="right")
    panel.set(xlabel="nodes that read", ylabel="GB/s together (emulated)", ylim=(0, None))
    return figure


def staging() -> Figure:
    """Draw when a copy pays off, for many small files and for one large file (emulated)."""
    cases = {
        "small files on NFS": ("NFS", A_FILE_EACH, EVENTS, A_FILE_EACH),
        "one file on Lustre": ("busy Lustre", IN_ORDER, 1, AT_RANDOM),
    }
    figure, panels = _slide(3.7, columns=2)
    for panel, (name, (preset, copy, opens, epoch)) in zip(panels, cases.items(), strict=True):
        copy_s = _seconds(preset, copy, opens)
        epoch_s = _seconds(preset, epoch, opens)
        epochs = np.linspace(0, 3, 50)
        panel.plot(epochs, epoch_s * epochs, "--", color=BAD, lw=3)
        panel.plot(epochs, np.full(50, copy_s), color=GOOD, lw=3)
        panel.axvline(copy_s / epoch_s, color=NEUTRAL, ls=":")
        panel.set(xlabel="epochs", xticks=range(4), ylim=(0, None))
        panel.set_title(f"{name}: n = {copy_s / epoch_s:.1g}", fontsize=20)
    panels[0].set_ylabel("seconds of loading")
    panels[1].text(1.9, 1.95 * epoch_s, "from the storage", ha="right")
    panels[1].text(3, 2 + copy_s, "copied first", ha="right")
    return figure


def node_processes() -> Figure:
    """Draw the processes of four ranks with eight workers each, and the 32 cores of a node."""
    figure, (panel,) = _slide(4.2)
    for rank in range(4):
        panel.barh(rank, 3.3, 0.8, left=3.6 * np.arange(9), color=[ORANGE, *[BLUE] * 8])
    panel.barh(4.6, 0.8, 0.8, left=np.arange(32), color=NEUTRAL)
    panel.set(yticks=[0, 1, 2, 3, 4.6], yticklabels=[*(f"rank {n}" for n in range(4)), "cores"])
    panel.text(33, 1.5, "36 processes", va="center")
    panel.text(33, 4.6, "32 cores", va="center")
    panel.set(xticks=[], xlim=(0, 41), ylim=(5.2, -0.6))
    panel.spines[["left", "bottom"]].set_visible(False)
    return figure


def dlio_trace() -> Figure:
    """Draw the DFTracer recording of DLIO, beginning with the first read."""
    trace = load_chrome(recording("dlio_unet3d.trace.json.gz"))
    start = min(span.start_ns for span in trace.spans if span.stage == "read") - 20e6
    rows = sorted({span.lane for span in trace.spans}, reverse=True)
    figure, (panel,) = _slide(4.4)
    for span in trace.spans:
        look, place = LOOKS[span.stage], (span.start_ns - start) / 1e6
        length = (span.end_ns - span.start_ns) / 1e6
        panel.barh(rows.index(span.lane), length, 0.7, place, color=look.color, alpha=look.opacity)
    for stage in ("read", "compute", "wait"):
        panel.barh(0, 0, color=LOOKS[stage].color, alpha=LOOKS[stage].opacity, label=stage)
    panel.set(yticks=range(len(rows)), yticklabels=rows, xlabel="ms", xlim=(0, None))
    panel.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3)
    return figure


HOURS_TO_FAILURE = 54 * 24 / 419  # Llama 3: 419 unexpected interruptions in 54 days


def checkpoint_interval() -> Figure:
    """Draw the time lost to checkpoints and failures, by checkpoint interval."""
    minutes = np.geomspace(2, 240, 200)
    figure, (panel,) = _slide(4.7)
    for seconds, color, line in ((300, BAD, "-"), (60, BLUE, "--"), (5, GOOD, "-.")):
        write = seconds / 60
        lost = 100 * (write / minutes + minutes / 2 / (60 * HOURS_TO_FAILURE))
        label = f"{seconds} s to write it"
        panel.plot(minutes, lost, line, color=color, lw=3, label=label)
        best = np.sqrt(2 * write * 60 * HOURS_TO_FAILURE)
        panel.plot(best, 100 * best / (60 * HOURS_TO_FAILURE), "o", color=color, ms=11)
    panel.set(xlabel="minutes between checkpoints (log)", ylabel="lost time in %")
    panel.set(xscale="log", xticks=[2, 5, 15, 60, 240], ylim=(0, 40))
    panel.set_xticklabels(["2", "5", "15", "60", "240"])
    panel.minorticks_off()
    panel.legend()
    return figure
