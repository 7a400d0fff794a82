"""More workers for samples that wait for storage, and for samples that use a core."""

import torch
from torch.utils.data import DataLoader, Dataset

from course_utils.hardware.gpu import get_accelerator
from course_utils.hardware.machine import usable_cores
from course_utils.hardware.storage import slow_storage
from course_utils.loading.events import NpzEvents, pad_collate
from course_utils.stories.lecture import Finding
from course_utils.stories.lecture.programs.loop import DISTURBED, train
from course_utils.teaching.explorer import use_cpu
from course_utils.teaching.notebook import data_path
from keepfed.measure.spans import stage
from keepfed.measure.throughput import steady_rate

WORKERS = 1, 2, 4, 8


class Decoded(Dataset[torch.Tensor]):
    """Samples that take 10 ms of CPU time."""

    def __len__(self) -> int:
        return 2000

    def __getitem__(self, index: int) -> torch.Tensor:
        with stage("decode"):
            use_cpu(10)
        return torch.tensor(index)


def run() -> Finding:
    """Measure both loaders alone, then one loader in a loop."""
    folder = data_path("events", "S")
    events = NpzEvents(folder, fs=slow_storage(folder, "busy Lustre", cache_mb=0))
    reads = [rate(DataLoader(events, 4, collate_fn=pad_collate, num_workers=w)) for w in WORKERS]
    decodes = [rate(DataLoader(Decoded(), 4, num_workers=w)) for w in WORKERS]
    gpu = get_accelerator(step_ms=20)
    impossible = decodes[-1] > 1.1 * usable_cores() * decodes[0]
    return Finding(
        f"Eight workers read {reads[-1] / reads[0]:.1f} times as fast as one, because they wait. "
        f"They decode {decodes[-1] / decodes[0]:.1f} times as fast, because this machine has "
        f"{usable_cores()} cores.{DISTURBED * impossible}",
        {
            f"{w} workers": train(
                gpu, DataLoader(events, 4, collate_fn=pad_collate, num_workers=w), steps=60
            )
            for w in (2, 8)
        },
        [
            ["workers", *map(str, WORKERS)],
            ["reading / one worker", *(f"{one / reads[0]:.1f}" for one in reads)],
            ["decoding / one worker", *(f"{one / decodes[0]:.1f}" for one in decodes)],
        ],
    )


def rate(loader: DataLoader[object]) -> float:
    """Return the steady batches per second of a loader."""
    return steady_rate(loader, seconds=0.7).batches_per_s
