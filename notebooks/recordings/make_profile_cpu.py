"""Profile four steps of a small training loop with 2 workers on the CPU.

python notebooks/recordings/make_profile_cpu.py profile_cpu.json.gz
"""

import sys

import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset):
    """Numbers that take a worker some milliseconds each."""

    def __len__(self) -> int:
        return 256

    def __getitem__(self, index: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(index)
        return torch.randn(40_000, generator=generator).sort().values[:256]


def main(file: str) -> None:
    """Train a small model and write the profile to `file`."""
    torch.set_num_threads(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(256, 8192), torch.nn.ReLU(), torch.nn.Linear(8192, 1)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    steps = schedule(wait=4, warmup=1, active=4, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], schedule=steps) as profiler:
        for batch in DataLoader(Slow(), batch_size=16, num_workers=2):
            with record_function("train"):
                optimizer.zero_grad()
                model(batch).square().mean().backward()
                optimizer.step()
            profiler.step()
    profiler.export_chrome_trace(file)


if __name__ == "__main__":
    main(*sys.argv[1:])
