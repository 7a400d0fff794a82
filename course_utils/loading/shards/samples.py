"""Encode events and images as samples of shards, and decode them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from course_utils.loading.events import MemmapEvents, Sample
from keepfed.loaders.images import Jpegs
from keepfed.loaders.images.jpegs import IMAGES
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


def image_samples(folder: str | Path, *, seed: int | None = None) -> Iterator[dict[str, Any]]:
    """Yield the images of class folders with the original file, such as jpg, and cls.

    Args:
        folder: Folder with one folder of images per class, as for `Jpegs`.
        seed: Seed of a fixed random order. None: the order on disk, class by class.
    """
    images = Jpegs(folder)
    for index in _order(len(images), seed):
        name = Path(images.name(index))
        ending = name.suffix[1:].lower()
        yield {
            "__key__": name.with_suffix("").as_posix(),
            "jpg" if ending == "jpeg" else ending: Path(folder, name).read_bytes(),
            "cls": int(images.labels[index]),
        }


def decode_image(sample: Mapping[str, Any]) -> tuple[torch.Tensor, int]:
    """Return the image, uint8 (3, height, width), and the class index of a sample of bytes."""
    encoded = next((sample[name[1:]] for name in IMAGES if name[1:] in sample), None)
    try:
        if encoded is None:
            raise OSError(f"it has no image, but the fields {', '.join(sample)}")
        with stage("decode"), Image.open(BytesIO(encoded)) as image:
            pixels = np.array(image.convert("RGB"))
    except OSError as error:
        raise OSError(
            f"The sample {sample.get('__key__')} of {sample.get('__url__')} cannot be decoded: "
            f"{error}. Replace or remove its image, and write the shards again."
        ) from error
    return torch.from_numpy(pixels).permute(2, 0, 1), int(sample["cls"])


def _order(n_samples: int, seed: int | None) -> list[int]:
    if seed is None:
        return list(range(n_samples))
    order: list[int] = np.random.default_rng(seed).permutation(n_samples).tolist()
    return order
