"""Figures of the deck `why_data`: self-supervision, scaling laws, operations and money."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from course_utils.hardware.storage import PRESETS
from course_utils.loading.events.draw import colors
from course_utils.stories.figures import log_dots
from data_scripts.telescope.detector import sensor_positions
from data_scripts.telescope.simulate import draw_events, simulate
from keepfed.palette import BLUE, GRAY, GREEN, ORANGE, PINK, SKY, VERMILION, YELLOW

Floats = NDArray[np.float64]

GPU_FLOPS = 400e12  # assumed rate of an H100 in training; its maximum is 989e12

# The coefficients of L = E + A / N^alpha + B / D^beta, N parameters and D tokens
HOFFMANN = {"A": 406.4, "alpha": 0.34, "B": 410.7, "beta": 0.28}
REFIT = {"A": 482.01, "alpha": 0.3478, "B": 2085.43, "beta": 0.3658}


# --- without labels


def masked_event() -> Figure:
    """Draw an event of the simulated telescope, complete and with hidden sensors."""
    table, runs = draw_events(400, np.random.default_rng(7))
    pulses, counts = simulate(table[-60:], runs, np.random.default_rng(8))
    chosen = int(np.argsort(counts)[-25])  # bright, but not a blot
    first = int(counts[:chosen].sum())
    time, charge, sensor, noise = pulses[first : first + counts[chosen]].T
    light = noise == 0
    time, charge, sensor = time[light] / 1000, charge[light], sensor[light].astype(int)
    height = sensor_positions()[sensor, 2]
    lit = np.unique(sensor)
    hidden = np.isin(sensor, np.random.default_rng(1).choice(lit, len(lit) // 4, replace=False))
    looks = {"s": 20 + 30 * np.sqrt(charge.clip(max=40)), "c": time, "cmap": colors()}
    figure, (whole, masked) = plt.subplots(1, 2, figsize=(12.3, 4.3), sharex=True, sharey=True)
    whole.scatter(time, height, edgecolors=GRAY, linewidths=0.4, **looks)
    seen = {name: of if name == "cmap" else np.asarray(of)[~hidden] for name, of in looks.items()}
    masked.scatter(time[~hidden], height[~hidden], edgecolors=GRAY, linewidths=0.4, **seen)
    masked.scatter(
        time[hidden], height[hidden], s=160, facecolors="none", edgecolors=VERMILION, linewidths=2.5
    )
    whole.set(title="recorded event", xlabel="time (µs)", ylabel="height (m)")
    masked.set(title="circles: predict these sensors", xlabel="time (µs)")
    return figure


def contrastive() -> Figure:
    """Draw the similarity of unseen pairs before and after training with CLIP's loss."""
    figure, panels = plt.subplots(1, 2, figsize=(12.3, 4.2))
    for panel, name, steps in zip(panels, ("before training", "after it"), (0, 50), strict=True):
        panel.imshow(_likeness(steps), cmap="cividis", vmin=-1, vmax=1)
        panel.set(title=name, xlabel="text", xticks=[], yticks=[])
    panels[0].set(ylabel="picture")
    figure.colorbar(panels[1].images[0], ax=panels, label="cosine", ticks=[-1, 0, 1])
    return figure


def _likeness(steps: int) -> Floats:
    """Return the cosines of eight new pictures (rows) and texts after `steps` of training."""
    rng = np.random.default_rng(0)
    # a picture and its text are two projections of the same six numbers
    views = [rng.normal(size=(6, width)) for width in (32, 24)]
    encoders = [rng.normal(size=(view.shape[1], 8)) for view in views]

    def encode(count: int) -> tuple[list[Floats], list[Floats], list[Floats]]:
        """Return new pairs, the lengths of their codes, and the normalized codes."""
        meaning = rng.normal(size=(count, 6))
        pairs = [meaning @ view + 0.5 * rng.normal(size=(count, view.shape[1])) for view in views]
        codes = [one @ encoder for one, encoder in zip(pairs, encoders, strict=True)]
        lengths = [np.linalg.norm(code, axis=1, keepdims=True) for code in codes]
        return pairs, lengths, [code / of for code, of in zip(codes, lengths, strict=True)]

    for _ in range(steps):
        pairs, lengths, codes = encode(32)
        weight = np.exp(10 * codes[0] @ codes[1].T)
        # gradient of the cross-entropies of pictures and of texts
        slope = weight / weight.sum(0) + weight / weight.sum(1, keepdims=True) - 2 * np.eye(32)
        for side, pull in enumerate((slope @ codes[1], slope.T @ codes[0])):
            across = pull - (pull * codes[side]).sum(1, keepdims=True) * codes[side]
            encoders[side] -= 0.1 * pairs[side].T @ (across / lengths[side])
    rng = np.random.default_rng(1)  # the same new pairs before and after
    pictures, texts = encode(8)[2]
    found: Floats = pictures @ texts.T
    return found


# --- scale


def tokens_by_year() -> Figure:
    """Draw the tokens of some language models, and the estimated stock of text."""
    models = {
        "BERT (words)": (2018.8, 3.3e9),
        "GPT-3": (2020.4, 300e9),
        "Chinchilla": (2022.2, 1.4e12),
        "Llama 3.1": (2024.55, 15.6e12),
    }
    figure, panel = plt.subplots(figsize=(12.3, 4.1))
    panel.axhspan(1e14, 1e15, color=SKY, alpha=0.3, linewidth=0)
    panel.axhline(3e14, color=plt.rcParams["text.color"], linestyle="--")
    panel.text(2018.1, 3.6e14, "public text written by people, estimate of 2024", va="bottom")
    years, tokens = zip(*models.values(), strict=True)
    panel.plot(years, tokens, "o", color=VERMILION, markersize=12)
    for name, (year, count) in models.items():
        panel.annotate(name, (year, count), (14, -7), textcoords="offset points")
    panel.set(yscale="log", ylim=(5e8, 2e15), xlim=(2018, 2026.4), ylabel="tokens (log)")
    panel.set_xticks(range(2018, 2027, 2))
    return figure


# name -> scale and power of Kaplan et al., and their measured range
LAWS = {
    "parameters": (8.8e13, 0.076, 768, 1.5e9),
    "tokens": (5.4e13, 0.095, 22e6, 23e9),
}


def kaplan() -> Figure:
    """Draw two power laws of Kaplan et al., dotted outside of the measured range."""
    figure, panels = plt.subplots(1, 2, figsize=(12.3, 4.3), sharey=True)
    for panel, (name, law), color in zip(panels, LAWS.items(), (BLUE, GREEN), strict=True):
        scale, power, low, high = law
        measured, further = np.geomspace(low, high), np.geomspace(high, 100 * high)
        panel.loglog(measured, (scale / measured) ** power, color=color)
        panel.loglog(further, (scale / further) ** power, ":", color=color)
        panel.annotate(f"power {power}", (0.55, 0.75), xycoords="axes fraction")
        panel.set(xlabel=f"{name} (log)")
    panels[0].set(ylabel="loss (nats a token, log)", ylim=(1.6, 8))
    panels[0].set_yticks([2, 4, 8], ["2", "4", "8"])
    panels[0].minorticks_off()
    return figure


def percent_less_loss() -> list[int]:
    """Return the loss reduction, in percent, for ten times the parameters or tokens."""
    return [round(100 * (1 - 10**-power)) for _, power, *_ in LAWS.values()]


def tokens_per_parameter(compute: Floats, fit: dict[str, float]) -> Floats:
    """Return D / N that minimizes A / N^alpha + B / D^beta for `compute` = 6 N D operations."""
    alpha, beta = fit["alpha"], fit["beta"]
    scale = (alpha * fit["A"] / (beta * fit["B"])) ** (1 / (alpha + beta))
    parameters = scale * (compute / 6) ** (beta / (alpha + beta))
    ratio: Floats = compute / 6 / parameters**2
    return ratio


def tokens_at_chinchilla() -> list[float]:
    """Return the tokens per parameter of Hoffmann's printed fit and of its re-fit."""
    compute = np.array(6 * 70e9 * 1.4e12)
    return [
        float(np.round(tokens_per_parameter(compute, fit), -1 if fit is HOFFMANN else 0))
        for fit in (HOFFMANN, REFIT)
    ]


def trained_once() -> Figure:
    """Draw a model that is trained once and adapted to four tasks."""
    figure, panel = plt.subplots(figsize=(12.3, 2.7))
    boxes = {
        "all events,\nno labels": (0, 1.5, SKY),
        "one model of\nthe detector": (4.4, 1.5, ORANGE),
    }
    tasks = ("direction", "energy", "kind of event", "noise, or not")
    boxes |= {task: (8.8, 3 - row, GREEN) for row, task in enumerate(tasks)}
    for name, (left, middle, color) in boxes.items():
        height = 0.8 if left > 8 else 1.8
        panel.add_patch(Rectangle((left, middle - height / 2), 3, height, color=color))
        panel.text(left + 1.5, middle, name, ha="center", va="center", color="black")
    arrow = {"arrowstyle": "->", "linewidth": 3, "color": GRAY}
    panel.annotate("", (4.3, 1.5), (3.1, 1.5), arrowprops=arrow)
    for row in range(len(tasks)):
        panel.annotate("", (8.7, row), (7.5, 1.5), arrowprops=arrow)
    panel.set(xlim=(-0.1, 11.9), ylim=(-0.5, 3.5))
    panel.axis("off")
    return figure


# --- operations


def days_of_405b() -> float:
    """Return the days that 30.84 million GPU-hours take on 16,384 GPUs."""
    return round(30.84e6 / 16_384 / 24)


def operations_of_405b() -> float:
    """Return the operations of the training of Llama 3.1 405B, in 10^25."""
    return round(6 * 405e9 * 15.6e12 / 1e25, 1)


def text_mb_a_second() -> float:
    """Return the MB/s that all GPUs of this training read, with four bytes per token."""
    return round(15.6e12 * 4 / (30.84e6 / 16_384 * 3600) / 1e6)


def six_operations() -> Figure:
    """Draw the three matrix products of a layer in a training step."""
    square, tall, wide = (2.0, 2.0), (0.8, 2.0), (2.0, 0.8)  # width and height
    products = {
        "forward": (("W", square), ("x", tall), ("y", tall)),
        "backward, inputs": (("$W^T$", square), ("$g_y$", tall), ("$g_x$", tall)),
        "backward, weights": (("$g_y$", tall), ("$x^T$", wide), ("$g_W$", square)),
    }
    figure, panels = plt.subplots(1, 3, figsize=(12.3, 2.5))
    for panel, (name, boxes) in zip(panels, products.items(), strict=True):
        left = 0.0
        for (label, (width, height)), gap in zip(boxes, (0.15, 0.7, 0.0), strict=True):
            color = SKY if "W" in label else ORANGE
            box = Rectangle((left, -height / 2), width, height, facecolor=color, edgecolor=GRAY)
            panel.add_patch(box)
            panel.text(left + width / 2, 0, label, ha="center", va="center", color="black")
            left += width + gap
        panel.text(left - boxes[-1][1][0] - 0.35, 0, "=", ha="center", va="center")
        panel.set(title=name, xlim=(-0.1, 5.9), ylim=(-1.05, 1.05), aspect="equal")
        panel.axis("off")
    return figure


def low_rank() -> Figure:
    """Draw a frozen weight matrix plus the product of two thin matrices."""
    figure, panel = plt.subplots(figsize=(5.9, 3.9))
    for name, left, bottom, width, height, looks in (
        ("W", 0.0, 0.0, 4.0, 4.0, {"facecolor": GRAY, "alpha": 0.5}),
        ("B", 5.2, 0.0, 0.5, 4.0, {"facecolor": SKY, "hatch": "//"}),
        ("A", 6.0, 3.5, 4.0, 0.5, {"facecolor": SKY, "hatch": "//"}),
    ):
        panel.add_patch(Rectangle((left, bottom), width, height, edgecolor=BLUE, **looks))
        place = (left + width / 2, bottom + height / 2) if name == "W" else (left, bottom - 0.6)
        panel.text(*place, name, ha="center" if name == "W" else "left")
    panel.text(4.6, 2, "+", ha="center", va="center")
    panel.set(xlim=(-0.1, 10.1), ylim=(-0.8, 4.1), aspect="equal")
    panel.axis("off")
    return figure


# name -> (operations per sample in training, bytes per sample)
JOBS: dict[str, tuple[float, float]] = {
    "7 billion parameters, a token": (6 * 7e9, 2),
    "100 million parameters, a token": (6 * 100e6, 2),
    "ResNet-50, a JPEG": (3 * 2 * 3.8e9, 138e9 / 1_281_167),
    "1 million parameters, a pulse": (6 * 1e6, 16),
}


def demand(name: str) -> float:
    """Return the MB/s that a GPU needs if it never waits."""
    operations, size = JOBS[name]
    return GPU_FLOPS / operations * size / 1e6


def bytes_and_operations() -> Figure:
    """Draw the MB/s that one GPU needs for four models, and the rate of a gigabit network."""
    rates = {name: demand(name) for name in JOBS}
    figure, panel = plt.subplots(figsize=(12.3, 4.3))
    say = lambda rate: f"{rate:,.2g}" if rate < 10 else f"{rate:,.0f}"  # noqa: E731
    log_dots(panel, rates, "MB/s for a GPU that never waits", say, [SKY, SKY, ORANGE, VERMILION])
    network = PRESETS["NFS"].mb_s
    panel.axvline(network, color=GRAY, linestyle="--")
    panel.text(1.4 * network, 0, "a gigabit network", va="center")
    return figure


def who_sees_what() -> Figure:
    """Draw which batch each of eight ranks sees, for four kinds of parallelism."""
    ranks_a_batch = {
        "data": 1,
        "data, with sharded weights": 1,
        "tensors, in fours": 4,
        "pipeline of four stages": 4,
    }
    colors = (BLUE, ORANGE, GREEN, PINK, SKY, YELLOW, VERMILION, GRAY)
    figure, panel = plt.subplots(figsize=(12.3, 3.6))
    for row, ranks in enumerate(ranks_a_batch.values()):
        for rank in range(8):
            batch = rank // ranks
            panel.barh(row, 0.92, left=rank, height=0.8, color=colors[batch])
            letter = panel.text(rank + 0.46, row, "ABCDEFGH"[batch], ha="center", va="center")
            letter.set(color="black", weight="bold")
    panel.set_yticks(range(4), list(ranks_a_batch))
    panel.set_xticks([rank + 0.46 for rank in range(8)], [f"rank {rank}" for rank in range(8)])
    panel.invert_yaxis()
    panel.tick_params(length=0)
    panel.spines[["left", "bottom"]].set_visible(False)
    return figure


# --- money

RACK_A_DAY, RACK_GPUS, CLOUD_A_DAY = 2_821.0, 72, 192.0
BUSY, REACHABLE = 0.3, 0.8


def useful_hour() -> Figure:
    """Draw the price of a useful GPU-hour over the utilization of the GPU."""
    share = np.linspace(0.15, 1)
    marked = np.array([BUSY, REACHABLE])
    figure, panel = plt.subplots(figsize=(5.9, 4.3))
    for name, price, line, color in (
        ("rack", RACK_A_DAY / 24 / RACK_GPUS, "-", BLUE),
        ("cloud", CLOUD_A_DAY / 24 / 8, "--", ORANGE),
    ):
        panel.plot(100 * share, price / share, line, color=color, label=name)
        panel.plot(100 * marked, price / marked, "o", color=color, markersize=11)
    panel.set(xlabel="% of the time that a GPU works", ylabel="$ for a useful hour")
    panel.set(ylim=(0, 8), xlim=(15, 100))
    panel.legend()
    return figure


def recoverable_a_day() -> list[float]:
    """Return the dollars per day that rack and cloud save if utilization rises to 80 %."""
    return [round(price * (1 - BUSY / REACHABLE)) for price in (RACK_A_DAY, CLOUD_A_DAY)]


def useful_hour_prices() -> list[float]:
    """Return the price of a useful GPU-hour of the rack, at 30 % and at 80 % utilization."""
    return [round(RACK_A_DAY / 24 / RACK_GPUS / share, 2) for share in (BUSY, REACHABLE)]
