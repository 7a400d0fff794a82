"""A small transformer for events of the telescope, after PolarBERT (github.com/timinar/PolarBERT).

The model learns two tasks. "masked": the sensors of some pulses are hidden, and the model predicts
them from all other pulses. "direction": the model predicts where the particle came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

HIDDEN = 0.25  # share of the pulses whose sensors are hidden
FEATURES = 4  # features of a pulse, besides its sensor
_METRES = 500.0  # unit of length in the model: half the detector
_WAVES = 4  # waves that encode a position, with wavelengths of 4, 2, 1 and 1/2 units

Batch = Mapping[str, Tensor]


class PulseTransformer(nn.Module):
    """A transformer over the pulses of an event: sensor readings and sensor positions."""

    sensors: Tensor

    def __init__(
        self, sensors: NDArray[np.float32], *, width: int = 64, layers: int = 2, heads: int = 4
    ):
        """Create an untrained model; `sensors` are positions x, y, z in meters."""
        super().__init__()
        place = torch.as_tensor(sensors) / _METRES
        waves = torch.cat([2.0**k * torch.pi / 2 * place for k in range(_WAVES)], 1)
        self.register_buffer("sensors", torch.cat([place, waves.sin(), waves.cos()], 1))
        self.where = nn.Sequential(
            nn.Linear(self.sensors.shape[1], width), nn.GELU(), nn.Linear(width, width)
        )
        self.what = nn.Linear(FEATURES, width)
        self.hidden = nn.Parameter(torch.zeros(width))  # replaces the position of a hidden sensor
        layer = nn.TransformerEncoderLayer(
            width, heads, 2 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.guess = nn.Linear(width, width)
        self.points = nn.Sequential(nn.Linear(2 * width, width), nn.GELU(), nn.Linear(width, 3))

    def loss(self, task: str, batch: Batch) -> Tensor:
        """Return the loss of the "masked" task in nats, or of the "direction" task (1 - cos)."""
        return self.masked_loss(batch) if task == "masked" else self.direction_loss(batch)

    def masked_loss(self, batch: Batch) -> Tensor:
        """Hide sensors of pulses whose neighbors were hit too, and return the loss in nats."""
        company = batch["mask"] & (batch["features"][..., 2] == 0)
        hide = company & (torch.rand(company.shape, device=company.device) < HIDDEN)
        guess = self.guess(self._encode(batch, hide)[hide])
        logits = guess @ self.where(self.sensors).T
        return F.cross_entropy(logits, batch["sensor"][hide])

    def direction_loss(self, batch: Batch) -> Tensor:
        """Return 1 minus the mean cosine of the angle to the true direction."""
        return 1 - (self.direction(batch) * batch["direction"]).sum(1).mean()

    def direction(self, batch: Batch) -> Tensor:
        """Return the predicted directions of origin as unit vectors, shape (B, 3)."""
        mask = batch["mask"][..., None]
        states = self._encode(batch, None)
        mean = (states * mask).sum(1) / mask.sum(1)
        most = states.masked_fill(~mask, -1e4).amax(1)
        return F.normalize(cast(Tensor, self.points(torch.cat([mean, most], 1))), dim=1)

    def _encode(self, batch: Batch, hide: Tensor | None) -> Tensor:
        where = self.where(self.sensors)[batch["sensor"]]
        if hide is not None:
            where = torch.where(hide[..., None], self.hidden, where)
        states = where + self.what(batch["features"])
        return cast(Tensor, self.encoder(states, src_key_padding_mask=~batch["mask"]))
