"""Read what torch.profiler exported, so that a profile of any training loop can be drawn.

with torch.profiler.profile(schedule=schedule(wait=1, warmup=1, active=8)) as profiler:
    for batch in loader:
        train(batch)
        profiler.step()
profiler.export_chrome_trace("profile.json.gz")
load_profile("profile.json.gz").timeline()
"""

from __future__ import annotations

from pathlib import Path

from course_utils.measure.trace import Trace


def load_profile(path: str | Path) -> Trace:
    """Read a Chrome trace of torch.profiler (.json or .json.gz); times begin at 0.

    Lanes: "gpu" (compute: kernels), "copy" (transfer: copies to and from the device), "main" (wait:
    for the next batch) and, where nothing ran on a GPU, "cpu" (compute: the main process).
    Worker processes are not in such a file; the note of the trace says so.

    Raises:
        ValueError: the file holds no profile.
    """
    raise NotImplementedError
