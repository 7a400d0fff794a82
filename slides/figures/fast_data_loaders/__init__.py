"""Figures of the deck *Fast data loaders*: counted, simulated or emulated during the build."""

from slides.figures.fast_data_loaders.loading import (
    duplicates,
    formats,
    shuffles,
    worker_processes,
    workers,
)
from slides.figures.fast_data_loaders.many_gpus import slowest, useful_hour
from slides.figures.fast_data_loaders.measuring import smi, stopwatch, three_runs
from slides.figures.fast_data_loaders.near_the_gpu import bus, cache_policies, copies, race
from slides.figures.fast_data_loaders.waiting import cliff, exposes, model, stages
