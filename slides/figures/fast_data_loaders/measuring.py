"""Figures of measurements: the panel of a GPU, three runs, and a stopwatch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from course_utils.stories.figures import value_bars
from keepfed.measure.picture import LOOKS
from keepfed.palette import BAD, MEASURED, SERIES
from slides.figures.fast_data_loaders.drawing import LOOP, rate, slide


def smi() -> Figure:
    """Draw GPU-Util, power and activity of an emulated GPU for three training runs."""
    shown = {
        "one multiprocessor\nof 82 works": _panel(kernels=1 / 82),
        "all work": _panel(kernels=1.0),
        "all, but half of the\ntime they wait": _panel(kernels=1.0, pause=True),
    }
    rows = {
        "GPU-Util": [one.gpu_util for one in shown.values()],
        "power": [100 * one.power_w / one.max_power_w for one in shown.values()],
        "at work": [100 * one.sm_active for one in shown.values()],
    }
    with slide(12.4, 4.7) as (figure, (panel,)):
        looks = zip(SERIES, ("", "//", ".."), strict=False)
        for number, ((name, found), (color, hatch)) in enumerate(
            zip(rows.items(), looks, strict=True)
        ):
            places = [place + 0.27 * (number - 1) for place in range(len(shown))]
            drawn = panel.barh(places, found, 0.25, color=color, hatch=hatch, label=name)
            panel.bar_label(drawn, [f"{value:.0f} %" for value in found], padding=6)
        panel.set(yticks=range(len(shown)), yticklabels=shown, xticks=[], xlim=(0, 185))
        panel.invert_yaxis()
        panel.legend(loc="center right", title="emulated")
    return figure


def _panel(*, kernels: float, pause: bool = False) -> Any:
    """Return the nvidia-smi panel of an emulated GPU after some seconds of kernels.

    Args:
        kernels: Share of the multiprocessors that each kernel uses.
        pause: Whether the GPU waits as long as it computes.
    """
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
    """Draw the rates of loader, step and both together for two loops."""
    loops = {
        "limited by its loader": replace(LOOP, read_ms=150, step_ms=30),
        "GPU-bound: leave it alone": replace(LOOP, read_ms=30, step_ms=60),
    }
    with slide(12.4, 4.0, columns=2) as (figure, panels):
        for panel, (title, loop) in zip(panels, loops.items(), strict=True):
            rates = {
                "loader alone": 1000 * loop.num_workers / loop.load_ms,
                "step alone": 1000 / loop.step_ms,
                "together": rate(loop),
            }
            value_bars(panel, rates, "{:.0f}".format, color=["gray", "gray", BAD])
            panel.set(title=title, xticks=[], xlabel="batches per second")
        panels[1].set_yticklabels([])
    return figure


def remedies() -> Figure:
    """Draw what you see in a slow loop, and the change that it asks for in its stage's color."""
    rows = {
        "step alone ≈ together": ("compute", "the model"),
        "num_workers=0": ("decode", "W = L / C"),
        "workers sleep": ("read", "larger reads, shards"),
        "workers compute": ("decode", "decode less"),
        "copies wait": ("transfer", "pin, copy stream"),
        "too fast to be true": ("collate", "keepfed audit"),
    }
    with slide(12.4, 5.4) as (figure, (panel,)):
        for row, (seen, (stage, change)) in enumerate(rows.items()):
            look = LOOKS[stage]
            panel.text(4.7, row, seen, ha="right", va="center")
            arrow = {"arrowstyle": "->", "color": "gray", "lw": 3}
            panel.annotate("", (5.9, row), (4.9, row), arrowprops=arrow)
            panel.barh(row, 5.4, 0.76, left=6.1, color=look.color)
            panel.text(8.8, row, change, color=look.text, ha="center", va="center")
        panel.set(xlim=(0, 11.6), ylim=(5.5, -0.5))
        panel.axis("off")
    return figure


def stopwatch() -> Figure:
    """Draw which line of a loop shows the time of the GPU, with and without `item()`."""
    found = {"with item()": _lines(read_loss=True), "without": _lines(read_loss=False)}
    with slide(12.4, 3.9, columns=2, sharey=True) as (figure, panels):
        for panel, (title, lines) in zip(panels, found.items(), strict=True):
            value_bars(panel, lines, "{:.0f} ms".format, color=MEASURED)
            panel.set(title=title, xticks=[], xlim=(0, 55))
    return figure


def _lines(*, read_loss: bool, steps: int = 30) -> dict[str, float]:
    """Return the milliseconds per step that a stopwatch shows for three lines."""
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
    names = 'batch.to("cuda")', "train_step(batch)", "loss.item()"
    return dict(zip(names, spent / steps / 1e6, strict=True))
