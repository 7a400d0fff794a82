"""Create events of a neutrino telescope: ragged pulses with direction, energy and kind.

    python -m data_scripts.make_events --size M
    python -m data_scripts.make_events --size M --check

Muon tracks and particle cascades in a cubic kilometer of ice with 5,160 light sensors, in the
columns of the public IceCube data. The physics and its sources are in the package `telescope`.
Size L omits the folder with one file per event. `convert_events` adds it, and many more formats.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from course_utils.loading.events import FORMATS, Block, EventArrays, write_events, write_sensors
from data_scripts import files
from data_scripts.command import DatasetScript
from data_scripts.telescope.detector import sensor_positions
from data_scripts.telescope.simulate import Runs, draw_events, simulate

COUNTS = {"S": 2_000, "M": 20_000, "L": 200_000}
EVENTS_AT_ONCE = 500


def build(folder: Path, size: str, seed: int) -> files.Facts:
    """Fill an empty folder with the events of `size` in all their formats."""
    table, runs = draw_events(COUNTS[size], np.random.default_rng(seed))
    write_sensors(folder, sensor_positions())
    with threadpool_limits(1):  # waiting threads would take three quarters of the CPU time
        pulses = write_events(folder, table, _simulated(table, runs, seed))
    events = EventArrays.load(folder)
    for name in ("hdf5", "parquet") if size == "L" else ("npz", "hdf5", "parquet"):
        FORMATS[name].write(events, folder / FORMATS[name].entry)
    return {"counts": {"events": len(events), "pulses": pulses}}


def _simulated(table: NDArray[np.void], runs: Runs, seed: int) -> Iterator[Block]:
    """Yield the pulses in blocks, each with its own seed, so that memory use stays small."""
    with tqdm(total=len(table), desc="events", unit="event", disable=None) as bar:
        for first in range(0, len(table), EVENTS_AT_ONCE):
            block = table[first : first + EVENTS_AT_ONCE]
            yield simulate(block, runs, np.random.default_rng([seed, first]))
            bar.update(len(block))


SCRIPT = DatasetScript(
    name="events",
    version=2,
    counts=COUNTS,
    bytes_each={"S": 8_500, "M": 8_500, "L": 5_000},
    seconds={"S": 2, "M": 8, "L": 32},
    build=build,
    usage=__doc__,
)
main = SCRIPT.main

if __name__ == "__main__":
    sys.exit(main())
