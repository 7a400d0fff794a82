"""Train a small network on events in a given order, to see the effect of the order."""

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import torch
from torch import nn

from course_utils.loading.events import MemmapEvents
from keepfed.loaders.stream import batched

Order = Callable[
    [int, np.random.Generator], Iterable[int]
]  # from (n, generator) to an order of n events
HELD_OUT, BATCH, EPOCHS = 400, 32, 4


def held_out_loss(folder: str | Path, order: Order) -> list[float]:
    """Return the mean squared error on held-out events after each step of four epochs.

    The network predicts the energy from the number of pulses and their charge, all standardized.

    Args:
        folder: events as make_events writes them.
        order: returns the positions of the training events for one epoch.
    """
    light, energy = light_and_energy(folder)
    chosen = np.random.default_rng(0).permutation(len(energy))
    test, keep = torch.from_numpy(chosen[:HELD_OUT]), np.sort(chosen[HELD_OUT:])
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1), nn.Flatten(0))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    losses = []
    for epoch in range(EPOCHS):
        for batch in batched(order(len(keep), np.random.default_rng(epoch)), BATCH):
            rows = torch.from_numpy(keep[np.asarray(batch)])
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(network(light[rows]), energy[rows])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            with torch.no_grad():
                losses.append(nn.functional.mse_loss(network(light[test]), energy[test]).item())
    return losses


def light_and_energy(folder: str | Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Return pulse counts and charges, shape (events, 2), and energies, shape (events,).

    All values are standardized logarithms.
    """
    events = MemmapEvents(folder)
    samples = events.__getitems__(range(len(events)))
    light = torch.tensor([[s["n_pulses"], s["pulses"][:, 1].sum()] for s in samples]).log10()
    energy = torch.from_numpy(events.labels.energy)
    return (light - light.mean(0)) / light.std(0), (energy - energy.mean()) / energy.std()
