"""A training that can resume after a kill, for notebook 11."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from course_utils.stories.small_training.orders import light_and_energy
from keepfed.loaders.resume import ResumableBatches, sample_rng
from keepfed.loaders.workers import SharedEpoch

BATCH, SEED = 64, 1
Sample = dict[str, Any]


class SmearedEvents(Dataset[Sample]):
    """The light of each event, smeared differently in each epoch, and its energy."""

    def __init__(self, light: torch.Tensor, energy: torch.Tensor, epoch: SharedEpoch):
        """Store all events; `epoch` is the shared epoch of the batches."""
        self.light, self.energy, self.epoch = light, energy, epoch

    def __len__(self) -> int:
        return len(self.energy)

    def __getitem__(self, index: int) -> Sample:
        noise = sample_rng(SEED, self.epoch.value, index).normal(0, 0.1, 2)
        light = self.light[index] + torch.tensor(noise, dtype=torch.float32)
        return {"index": index, "light": light, "energy": self.energy[index]}


class Training:
    """A small network with dropout that learns the energy, and its complete state."""

    def __init__(self, folder: str | Path, *, workers: int):
        """Start a new training with the same seed each time."""
        torch.manual_seed(SEED)
        torch.set_num_threads(1)  # several threads may change the last digit of sums
        layers = nn.Linear(2, 16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 1), nn.Flatten(0)
        self.network = nn.Sequential(*layers)
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=0.01, momentum=0.9)
        light, energy = light_and_energy(folder)
        self.batches = ResumableBatches(len(energy), BATCH, seed=SEED)
        self.loader = DataLoader(
            SmearedEvents(light, energy, self.batches.epoch),
            batch_sampler=self.batches,
            num_workers=workers,
            persistent_workers=workers > 0,
            generator=torch.Generator(),  # else each loop draws from the generator of dropout
        )
        self.losses: list[float] = []
        self.events: list[int] = []  # event indices in training order

    def step(self, batch: Mapping[str, torch.Tensor]) -> None:
        """Train on one batch, and record its loss and its events."""
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.network(batch["light"]), batch["energy"])
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.losses.append(loss.item())
        self.events.extend(batch["index"].tolist())

    def state_dict(self) -> dict[str, Any]:
        """Return everything that the next step depends on, and the records."""
        return {
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "random": torch.get_rng_state(),
            "batches": self.batches.state_dict(),
            "losses": self.losses,
            "events": self.events,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state, to resume the training there."""
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"])
        self.batches.load_state_dict(state["batches"])
        self.losses, self.events = [*state["losses"]], [*state["events"]]
