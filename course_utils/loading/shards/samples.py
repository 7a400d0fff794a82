"""Encode events as samples of shards, and decode them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

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
    for index in _order(len(events), seed):
        sample = events[index]
        labels = {
            "event_id": sample["event_id"],
            "run_id": sample["run_id"],
            "energy": sample["energy"],
            "direction": sample["direction"].tolist(),
            "kind": sample["kind"],
        }
        key = f"{index:09d}"
        yield {"__key__": key, "pulses.npy": sample["pulses"].numpy(), "labels.json": labels}


def decode_event(sample: Mapping[str, Any]) -> Sample:
    """Return the event in a sample of bytes, in the form of `MemmapEvents`."""
    with stage("decode"):
        pulses = torch.from_numpy(np.load(BytesIO(sample["pulses.npy"])))
        labels = json.loads(sample["labels.json"])
        return {
            "pulses": pulses,
            "n_pulses": len(pulses),
            "event_id": labels["event_id"],
            "run_id": labels["run_id"],
            "energy": labels["energy"],
            "direction": torch.tensor(labels["direction"], device="cpu"),
            "kind": labels["kind"],
        }


def _order(n_samples: int, seed: int | None) -> list[int]:
    if seed is None:
        return list(range(n_samples))
    order: list[int] = np.random.default_rng(seed).permutation(n_samples).tolist()
    return order
