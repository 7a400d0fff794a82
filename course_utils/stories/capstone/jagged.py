"""Train the capstone's transformer on padded and on ragged batches, with the same weights.

costs = padding_costs(data_path("events", "S"))
print(costs.seconds, costs.padding, costs.difference)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from course_utils.loading.events import MemmapEvents, Sample, read_sensors
from course_utils.stories.capstone.model import PulseTransformer
from keepfed.loaders.ragged import LengthBuckets, Ragged, RaggedCollate
from keepfed.loaders.resume import ResumableBatches

LONGEST = 512  # pulses of an event that the model sees, at most
BATCH, EVENTS = 16, 192


class RaggedTransformer(PulseTransformer):
    """The transformer of the capstone for ragged batches, without a mask."""

    def direction(self, batch: Mapping[str, Any]) -> Tensor:
        """Return the predicted directions of origin as unit vectors, shape (B, 3)."""
        features: Ragged = batch["features"]
        states = self.where(self.sensors)[batch["sensor"].values] + self.what(features.values)
        for layer in cast(Sequence[Any], self.encoder.layers):
            states = states + attend(layer.self_attn, layer.norm1(states), features)
            hidden = layer.activation(layer.linear1(layer.norm2(states)))
            states = states + layer.linear2(hidden)
        pooled = [
            torch.segment_reduce(states, reduce, offsets=features.offsets, axis=0)
            for reduce in ("mean", "max")
        ]
        return F.normalize(cast(Tensor, self.points(torch.cat(pooled, 1))), dim=1)


def attend(attention: nn.MultiheadAttention, states: Tensor, batch: Ragged) -> Tensor:
    """Return the attention of each row to the rows of its own event, shape (rows, width)."""
    mixed = F.linear(states, attention.in_proj_weight, attention.in_proj_bias)
    mixed = mixed.view(len(states), 3, attention.num_heads, attention.head_dim)
    found = []  # a call per event, because jagged tensors are slower on a CPU
    for event in mixed.transpose(0, 2).tensor_split(batch.offsets[1:-1], 2):
        query, key, value = event[:, :, None].unbind(1)
        found.append(F.scaled_dot_product_attention(query, key, value))
    attended = torch.cat(found, 2)[:, 0].transpose(0, 1)
    return cast(Tensor, attention.out_proj(attended.flatten(1)))


class PaddingCosts(NamedTuple):
    """Costs of the same events in three kinds of batches."""

    seconds: dict[str, float]  # CPU time of an epoch, by kind of batch
    padding: dict[str, float]  # share of the rows that are padding
    difference: float  # between the losses of a padded and a ragged batch of the same events


def padding_costs(folder: str | Path) -> PaddingCosts:
    """Train an epoch in padded batches, in length buckets, and in ragged batches."""
    events = MemmapEvents(folder)
    chosen = np.random.default_rng(1).choice(len(events), EVENTS, replace=False).tolist()
    samples = [as_tokens(sample) for sample in events.__getitems__(chosen)]
    lengths = [len(sample["features"]) for sample in samples]
    torch.manual_seed(1)
    padded, ragged = (kind(read_sensors(folder)) for kind in (PulseTransformer, RaggedTransformer))
    ragged.load_state_dict(padded.state_dict())
    join = RaggedCollate("features", "sensor")
    random, similar = list(ResumableBatches(EVENTS, BATCH)), list(LengthBuckets(lengths, BATCH))
    ways: dict[str, tuple[PulseTransformer, list[list[int]], Callable[..., Any]]] = {
        "padded": (padded, random, pad),
        "length buckets": (padded, similar, pad),
        "without padding": (ragged, random, join),
    }
    epochs = {
        name: [collate([samples[index] for index in batch]) for batch in order]
        for name, (_, order, collate) in ways.items()
    }
    with torch.no_grad():
        losses = [ways[name][0].direction_loss(epochs[name][0]) for name in list(ways)[::2]]
    return PaddingCosts(
        {name: _seconds(model, epochs[name]) for name, (model, *_) in ways.items()},
        {
            name: 1 - sum(lengths) / sum(batch["mask"].numel() for batch in epochs[name])
            for name in ("padded", "length buckets")
        },
        float((losses[0] - losses[1]).abs()),
    )


def as_tokens(sample: Sample) -> dict[str, Tensor]:
    """Return the brightest pulses of an event, in order of time, and its direction."""
    pulses = sample["pulses"]
    brightest = pulses[:, 1].topk(min(LONGEST, len(pulses))).indices.sort().values
    time_ns, charge, sensor, auxiliary = pulses[brightest].T
    seen = [(time_ns - 10_000) / 1000, charge.log10(), auxiliary, torch.zeros_like(charge)]
    return {
        "features": torch.stack(seen, 1),
        "sensor": sensor.long(),
        "direction": sample["direction"],
    }


def pad(samples: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Pad the pulses of a batch of events to the longest one."""
    features, sensor = (
        pad_sequence([sample[name] for sample in samples], batch_first=True)
        for name in ("features", "sensor")
    )
    lengths = torch.tensor([len(sample["sensor"]) for sample in samples])
    return {
        "features": features,
        "sensor": sensor,
        "mask": torch.arange(sensor.shape[1]) < lengths[:, None],
        "direction": torch.stack([sample["direction"] for sample in samples]),
    }


def _seconds(model: PulseTransformer, batches: Sequence[Mapping[str, Any]]) -> float:
    """Return the CPU time of forward and backward passes over all batches.

    Other programs do not count.
    """
    threads, start = torch.get_num_threads(), time.process_time()
    torch.set_num_threads(1)  # threads that wait for each other also take CPU time
    for batch in batches:
        model.zero_grad()
        model.direction_loss(batch).backward()  # type: ignore[no-untyped-call]
    torch.set_num_threads(threads)
    return time.process_time() - start
