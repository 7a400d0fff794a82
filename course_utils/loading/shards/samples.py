"""Encode events as samples of shards, and decode them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from course_utils.loading.events import MemmapEvents, Sample
from keepfed.measure.spans import stage


def event_samples(folder: str | Path, *, seed: int | None = None) -> Iterator[dict[str, Any]]:
    """Yield the events of a folder with the fields pulses.npy and labels.json.

    Args:
        folder: Folder that make_events has written.
        seed: Seed of a fixed random order. None: the order on disk, sorted by energy.
    """
    events = MemmapEvents(folder)
    order = np.arange(len(events))
    for index in order if seed is None else np.random.default_rng(seed).permutation(order):
        sample: dict[str, Any] = {**events[int(index)]}
        pulses, direction = sample.pop("pulses").numpy(), sample.pop("direction").tolist()
        labels = {**sample, "direction": direction}
        yield {"__key__": f"{index:09d}", "pulses.npy": pulses, "labels.json": labels}


def decode_event(sample: Mapping[str, Any]) -> Sample:
    """Return the event in a sample of bytes, in the form of `MemmapEvents`."""
    with stage("decode"):
        labels = json.loads(sample["labels.json"])
        labels["pulses"] = torch.from_numpy(np.load(BytesIO(sample["pulses.npy"])))
        labels["direction"] = torch.tensor(labels["direction"], device="cpu")
        return cast(Sample, labels)
