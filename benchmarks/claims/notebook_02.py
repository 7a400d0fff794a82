"""Compute or measure the claims of notebook 02."""

from dataclasses import replace
from tempfile import TemporaryDirectory

from course_utils.hardware.storage import BLOCK, slow_storage
from keepfed.measure.simulate import Pipeline, simulate

LOOP = Pipeline(read_ms=70, decode_ms=10, step_ms=50, num_workers=2)
CHANGED = (
    replace(LOOP, step_ms=20),
    replace(LOOP, step_ms=30),
    replace(LOOP, step_ms=25),
    replace(LOOP, num_workers=1),
    replace(LOOP, step_ms=150),
)


def hit_percent() -> int:
    """Return the hit share of a full page cache for data 1.1 times its size, in percent."""
    cached, blocks = 400, range(440)
    with TemporaryDirectory() as folder:
        with open(f"{folder}/data", "wb") as file:
            file.truncate(len(blocks) * BLOCK)
        storage = slow_storage(folder, "laptop SSD", cache_mb=cached * BLOCK / 1e6)
        with storage.open("data") as file:
            for epoch in range(6):
                if epoch == 2:
                    storage.reset_counters()
                for block in blocks:
                    file.seek(block * BLOCK)
                    file.read(1)
        return round(100 * storage.counters().hit_share)


def changes_that_expose() -> int:
    """Count the changes that leave a fed GPU idle for more than a fifth of the time."""
    return sum(simulate(loop).summary().au < 0.8 for loop in CHANGED)
