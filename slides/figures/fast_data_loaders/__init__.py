"""Figures of the deck *Fast data loaders*: counted, simulated or emulated during the build."""

from slides.figures.fast_data_loaders.loading import (
    duplicates,
    formats,
    shuffles,
    worker_processes,
    workers,
)
from slides.figures.fast_data_loaders.measuring import remedies, smi, stopwatch, three_runs
from slides.figures.fast_data_loaders.near_the_gpu import cache_policies, copies, race
from slides.figures.fast_data_loaders.waiting import ada, cliff, exposes, model, price, stages
