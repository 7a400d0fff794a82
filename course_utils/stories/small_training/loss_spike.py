"""A training with one loss spike, which notebook 13 traces back to a single sample.

python -m course_utils.stories.small_training.loss_spike    print the step of the spike
"""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from keepfed.loaders.resume import ResumableBatches, sample_rng

SEED, EPOCHS = 7, 3
PULSES, SENSORS = 1_024, 8


class SensorPulses(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Pulses of eight sensors, and their mean. One sensor of one event failed."""

    def __init__(self, epoch: torch.Tensor):
        generator = torch.Generator().manual_seed(SEED)
        self.charges = torch.rand(PULSES, SENSORS, generator=generator)
        self.charges[613, 5] = 400.0
        self.epoch = epoch  # shared with the workers

    def __len__(self) -> int:
        return PULSES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return augment(self.charges[index], int(self.epoch), index), self.charges[index].mean()


def augment(charges: torch.Tensor, epoch: int, index: int) -> torch.Tensor:
    """Return the charges with 1 % noise that depends on seed, epoch and index only."""
    noise = sample_rng(SEED, epoch, index).normal(1.0, 0.01, len(charges))
    return charges * torch.from_numpy(noise).float()


def train() -> list[float]:
    """Train a linear model, and return the loss of every step."""
    torch.manual_seed(SEED)
    epoch = torch.zeros(1, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]
    batches = ResumableBatches(PULSES, 32, seed=SEED)
    loader = DataLoader(SensorPulses(epoch), batch_sampler=batches, num_workers=2)
    model = nn.Linear(SENSORS, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    losses = []
    for number in range(EPOCHS):
        epoch.fill_(number)
        for charges, mean in batches.follow(loader):
            loss = nn.functional.mse_loss(model(charges)[:, 0], mean)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            losses.append(loss.item())
    return losses


def main() -> None:
    """Train, and print where the loss is largest."""
    losses = train()
    step = max(range(len(losses)), key=lambda step: losses[step])
    usual = sorted(losses)[len(losses) // 2]
    print(f"loss {losses[step]:,.1f} in step {step}, usually {usual:.2f}")


if __name__ == "__main__":
    main()
