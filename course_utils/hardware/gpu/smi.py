"""The figures of nvidia-smi, their actual meaning, and figures that it does not show.

NVML defines GPU-Util as the "percent of time over the past sample period during which one or more
kernels was executing on the GPU", the sample period being "between 1 second and 1/6 second,
depending on the product" (https://docs.nvidia.com/deploy/nvml-api/structnvmlUtilization__t.html). A
kernel on one of 82 multiprocessors counts in full, and earlier periods do not count.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

SAMPLE_NS = 1_000_000_000  # the longest period that NVML uses
_QUERY = "pstate,utilization.gpu,power.draw,power.limit,memory.used,memory.total"


@dataclass(frozen=True, kw_only=True)
class Smi:
    """One reading of the GPU; None means that the figure is not available."""

    name: str
    perf: str | None = None  # performance state, from P0 (fastest) to P12; often P8 when idle
    gpu_util: int | None = None  # percent, as nvidia-smi shows it
    power_w: float | None = None
    max_power_w: float | None = None
    memory_used: int | None = None  # bytes
    memory_total: int | None = None
    idle: float | None = None  # share of the time since the first kernel without a kernel
    sm_active: float | None = None  # share of multiprocessors busy in the sample period

    def __str__(self) -> str:
        """Return the panel, narrow enough for half a laptop's screen."""
        power = _pair(self.power_w, self.max_power_w, 1, "W")
        memory = _pair(self.memory_used, self.memory_total, 2**20, "MiB")
        return "\n".join(
            (
                self.name,
                "  nvidia-smi shows",
                f"    Perf           {self.perf or 'not available'}",
                f"    GPU-Util       {_share(self.gpu_util, 'of the last second had a kernel')}",
                f"    Pwr:Usage/Cap  {power}",
                f"    Memory-Usage   {memory}",
                "  it does not show",
                f"    idle           {_share(self.idle, 'since the first kernel', 100)}",
                f"    SMs at work    {_share(self.sm_active, 'of all, in the last second', 100)}",
            )
        )


def nvidia_smi(name: str, uuid: str) -> Smi:
    """Call the real nvidia-smi. Unavailable figures stay None."""
    command = ["nvidia-smi", f"--id={uuid}", f"--query-gpu={_QUERY}"]
    try:
        answer = subprocess.run(
            [*command, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return Smi(name=name)
    perf, *figures = answer.strip().split(", ")
    util, power, limit, used, total = map(_number, figures)
    return Smi(
        name=name,
        perf=perf if perf.startswith("P") else None,
        gpu_util=None if util is None else round(util),
        power_w=power,
        max_power_w=limit,
        memory_used=None if used is None else round(used * 2**20),
        memory_total=None if total is None else round(total * 2**20),
    )


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:  # "[N/A]"
        return None


def _share(value: float | None, of_what: str, scale: int = 1) -> str:
    return "not available" if value is None else f"{value * scale:3.0f} % {of_what}"


def _pair(value: float | None, limit: float | None, unit: int, name: str) -> str:
    if value is None or limit is None:
        return "not available"
    return f"{value / unit:.0f} {name} / {limit / unit:.0f} {name}"
