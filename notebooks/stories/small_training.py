"""Train a small network on events in a given order, to see what the order does to it."""

from collections.abc import Callable, Iterable
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure
from torch import nn

from course_utils.loading.events import MemmapEvents
from course_utils.loading.stream import batched, buffer_shuffle

Order = Callable[[int, np.random.Generator], Iterable[int]]  # of n events, in one epoch
HELD_OUT, BATCH, EPOCHS = 400, 32, 4
ORDERS: dict[str, Order] = {
    "in order": lambda n, rng: range(n),
    "buffer of a tenth": lambda n, rng: buffer_shuffle(range(n), n // 10, rng),
    "offline, once": lambda n, rng: np.random.default_rng(7).permutation(n),
}


def draw_losses(folder: str | Path) -> Figure:
    """Draw the error on held-out events after every step, for three orders of a sorted file."""
    with plt.style.context("course_utils.plots"):
        figure, panel = plt.subplots(figsize=(7, 2.8), layout="constrained")
        for (name, order), line in zip(ORDERS.items(), (":", "--", "-"), strict=True):
            losses = held_out_loss(folder, order)
            panel.plot(losses, line, label=name)
        panel.set_xlabel(f"step ({len(losses) // EPOCHS} are an epoch)")
        panel.set_ylabel("error on held-out events")
        panel.legend()
    plt.close(figure)  # a notebook shows what the cell returns, and only that
    return figure


def held_out_loss(folder: str | Path, order: Order) -> list[float]:
    """Return the mean squared error on held-out events after every step of four epochs.

    The network guesses the energy from the number of pulses and their charge, all standardised.

    Args:
        folder: events as make_events writes them.
        order: gives the positions of the training events, in the order on disk, for one epoch.
    """
    light, energy = _light_and_energy(folder)
    chosen = np.random.default_rng(0).permutation(len(energy))
    test, keep = torch.from_numpy(chosen[:HELD_OUT]), np.sort(chosen[HELD_OUT:])
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1), nn.Flatten(0))
    optimiser = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    losses = []
    for epoch in range(EPOCHS):
        for batch in batched(order(len(keep), np.random.default_rng(epoch)), BATCH):
            rows = torch.from_numpy(keep[np.asarray(batch)])
            optimiser.zero_grad()
            loss = nn.functional.mse_loss(network(light[rows]), energy[rows])
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            with torch.no_grad():
                losses.append(nn.functional.mse_loss(network(light[test]), energy[test]).item())
    return losses


def _light_and_energy(folder: str | Path) -> tuple[torch.Tensor, torch.Tensor]:
    events = MemmapEvents(folder)
    samples = events.__getitems__(range(len(events)))
    light = torch.tensor([[s["n_pulses"], s["pulses"][:, 1].sum()] for s in samples]).log10()
    energy = torch.from_numpy(events.labels.energy)
    return (light - light.mean(0)) / light.std(0), (energy - energy.mean()) / energy.std()
