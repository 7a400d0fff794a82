"""Figures of the GPUs that can be emulated, each with its source.

`specified` is what the vendor writes in a data sheet, `measured` what somebody saw and published,
and `assumed` what we found no figure for, or have from memory and could not verify.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# Of the vendor's own pages we saw what others quote from them.
GA102 = "https://www.nvidia.com/content/PDF/nvidia-ampere-ga-102-gpu-architecture-whitepaper-v2.pdf"
A100 = (
    "https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a100/pdf/"
    "nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf"
)
GA100 = (
    "https://images.nvidia.com/aem-dam/en-zz/Solutions/data-center/"
    "nvidia-ampere-architecture-whitepaper.pdf"
)
GH100 = "https://resources.nvidia.com/en-us-tensor-core/gtc22-whitepaper-hopper"
H200 = "https://www.nvidia.com/en-us/data-center/h200/"
# Transfers of 64 MiB on an RTX 4090 over PCIe 4.0 x16, which is the bus of an RTX 3090 too.
PCIE4 = "https://github.com/NVlabs/cuda-oxide/pull/976"
PCIE5 = "https://github.com/tinygrad/open-gpu-kernel-modules/issues/29"

# How much work the default step is: the model the GPU is imagined to train.
STEP_TFLOP = 0.6
# Share of the specified rate that a training step is imagined to reach.
EFFICIENCY = 0.4


@dataclass(frozen=True, kw_only=True)
class Preset:
    """One kind of GPU and the bus it hangs on; GB/s are 10**9 bytes per second."""

    name: str
    memory_gib: float  # what vendors write as GB
    sms: int  # streaming multiprocessors
    tflops: float  # dense bf16 with float32 sums
    pinned_gb_s: float  # host to device
    pageable_gb_s: float
    idle_w: float
    max_w: float
    sources: Mapping[str, str] = field(repr=False)  # name of the figure -> where it comes from

    @property
    def step_ms(self) -> float:
        """Duration of the default step on this GPU."""
        return STEP_TFLOP / (EFFICIENCY * self.tflops) * 1e3


PRESETS = {
    preset.name: preset
    for preset in (
        Preset(
            name="RTX 3090",
            memory_gib=24,
            sms=82,
            tflops=71,
            pinned_gb_s=23.9,
            pageable_gb_s=12.9,
            idle_w=18,
            max_w=350,
            sources={
                "memory_gib": f"specified: {GA102}",
                "sms": f"specified: {GA102}",
                "tflops": f"assumed: from memory of {GA102}, not verified",
                "pinned_gb_s": f"measured: {PCIE4}",
                "pageable_gb_s": f"measured: {PCIE4}",
                "idle_w": "measured: https://nationalpcbuilder.com/"
                "rtx-3090-power-consumption-how-much-power-does-the-rtx-3090-use/",
                "max_w": f"specified: {GA102}",
            },
        ),
        Preset(
            name="A100",
            memory_gib=80,
            sms=108,
            tflops=312,
            pinned_gb_s=25.1,
            pageable_gb_s=12.9,
            idle_w=60,
            max_w=400,
            sources={
                "memory_gib": f"specified: {A100}",
                "sms": f"specified: {GA100}",
                "tflops": f"specified: {A100}",
                "pinned_gb_s": "measured, with a kernel that copies: "
                "https://github.com/NVIDIA/nvbandwidth/issues/42",
                "pageable_gb_s": f"assumed: filling the staging buffer is the limit, as in {PCIE4}",
                "idle_w": "measured: https://github.com/allenai/PeerRead/issues/40",
                "max_w": f"specified: {A100}",
            },
        ),
        Preset(
            name="H200",
            memory_gib=141,
            sms=132,
            tflops=989,
            pinned_gb_s=56.3,
            pageable_gb_s=12.9,
            idle_w=75,
            max_w=700,
            sources={
                "memory_gib": f"specified: {H200}",
                "sms": f"assumed: from memory of {GH100}, not verified; it is the same chip",
                "tflops": f"specified: {H200} (half the figure with sparsity)",
                "pinned_gb_s": f"measured on an RTX 5090, which has the same bus: {PCIE5}",
                "pageable_gb_s": f"assumed: filling the staging buffer is the limit, as in {PCIE4}",
                "idle_w": "measured: https://conservemode.com/case-studies.html",
                "max_w": f"specified: {H200}",
            },
        ),
    )
}


def gpu_preset(name: str) -> Preset:
    """Return the preset of that name.

    Raises:
        ValueError: there is none.
    """
    if name not in PRESETS:
        raise ValueError(f"There is no preset {name!r}; use one of: {', '.join(PRESETS)}.")
    return PRESETS[name]
