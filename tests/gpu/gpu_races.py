"""Run design 2, 3 or 4 of notebook 09 under TORCH_CUDA_SANITIZER=1.

TORCH_CUDA_SANITIZER=1 python tests/gpu/gpu_races.py 2     # no wait, so a data race
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(Path(__file__).parent), str(REPO), str(REPO / "keepfed/src")]

from gpu_loops import noise, stage  # noqa: E402

from course_utils.hardware.gpu import Accelerator, checksum, get_accelerator  # noqa: E402

DESIGNS = {2: "no wait", 3: "a wait", 4: "a wait and record_stream"}


def right_batches(gpu: Accelerator, design: int, *, batches: int = 6) -> int:
    """Return how many batches are read correctly if each copy precedes the previous step."""
    hosts = [noise(4, seed=seed) for seed in range(batches)]
    copies, losses, ahead = gpu.Stream(), [], None
    for pinned in [*map(gpu.pin, hosts), None]:
        staged: Any = ahead
        ahead = None if pinned is None else stage(gpu, copies, pinned)
        if staged is None:
            continue
        batch, arrived = staged
        if design > 2:
            gpu.current_stream().wait_event(arrived)
        if design > 3:
            batch.record_stream(gpu.current_stream())
        losses.append(gpu.step(batch, ms=5))
        del batch, staged
    wanted = [float(checksum([host])) for host in hosts]
    return sum(loss.item() == right for loss, right in zip(losses, wanted, strict=True))


if __name__ == "__main__":
    number = int(sys.argv[1])
    accelerator = get_accelerator("H200", step_ms=5, emulate="--emulated" in sys.argv)
    print(f"{DESIGNS[number]}: {right_batches(accelerator, number)} of 6 right")
