"""Constants to normalize photographs, and the cost of augmentation for training jobs."""

from dataclasses import dataclass

import torch

from keepfed.loaders.images import IMAGENET_MEAN, IMAGENET_STD

MEAN = torch.tensor(IMAGENET_MEAN).view(3, 1, 1)
STD = torch.tensor(IMAGENET_STD).view(3, 1, 1)


@dataclass(frozen=True)
class AugmentJob:
    """A training job. Times are ms per batch, on the CPU for one core. Sizes are MB."""

    cores: int  # there are as many workers
    load_ms: float  # L: read, decode, collate
    augment_cpu_ms: float  # time of the augmentation in a worker, in addition to L
    step_ms: float  # C
    augment_gpu_ms: float  # A
    augment_mb: float  # device memory that the augmentation needs
    free_mb: float  # device memory that the training does not use


JOBS = {
    "small model": AugmentJob(2, 40, 80, 30, 3, 900, 9_000),
    "large model": AugmentJob(16, 40, 80, 200, 15, 900, 9_000),
    "full device": AugmentJob(2, 40, 80, 30, 3, 900, 400),
}
