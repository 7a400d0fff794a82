"""Read what DFTracer recorded, the tracer of I/O that DLIO and HPC centres use."""

from __future__ import annotations

from pathlib import Path

from course_utils.measure.trace import Trace


def load_dftracer(path: str | Path) -> Trace:
    """Read a DFTracer file (.pfw or .pfw.gz), or every one in a folder; times begin at 0.

    One lane per process, named "worker N" or "main" where that is known.

    Raises:
        ValueError: there is no DFTracer event in it.
    """
    raise NotImplementedError
