"""The GPUs that can be emulated; `presets.toml` says where each of their figures comes from."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

# How much work the default step is: the model the GPU is imagined to train.
STEP_TFLOP = 0.6
# Share of the specified rate that a training step is imagined to reach.
EFFICIENCY = 0.4


@dataclass(frozen=True, kw_only=True)
class Preset:
    """One kind of GPU and the bus it hangs on; GB/s are 10**9 bytes per second."""

    name: str
    memory_gib: float  # what vendors write as GB
    tflops: float  # dense bf16 with float32 sums
    pinned_gb_s: float  # host to device
    pageable_gb_s: float
    idle_w: float
    max_w: float

    @property
    def step_ms(self) -> float:
        """Duration of the default step on this GPU."""
        return STEP_TFLOP / (EFFICIENCY * self.tflops) * 1e3


_FIGURES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
PRESETS = {name: Preset(name=name, **figures) for name, figures in _FIGURES.items()}
