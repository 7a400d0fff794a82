"""Compute or measure the claims of notebook 02."""

import random
from dataclasses import replace
from tempfile import TemporaryDirectory

from course_utils.hardware.storage import BLOCK, slow_storage
from course_utils.teaching.explorer import run_pipeline
from course_utils.teaching.notebook import start_workers
from keepfed.measure.simulate import Pipeline, simulate

LOOP = Pipeline(read_ms=70, decode_ms=10, step_ms=50, num_workers=2)
CHANGED = (
    replace(LOOP, step_ms=20),
    replace(LOOP, step_ms=30),
    replace(LOOP, step_ms=25),
    replace(LOOP, num_workers=1),
    replace(LOOP, step_ms=150),
)


def hit_percent(*, shuffled: bool = False) -> int:
    """Return the hit share of a full page cache for data 1.1 times its size, in percent."""
    cached, blocks = 400, list(range(440))
    rng = random.Random(0)
    with TemporaryDirectory() as folder:
        with open(f"{folder}/data", "wb") as file:
            file.truncate(len(blocks) * BLOCK)
        storage = slow_storage(folder, "laptop SSD", cache_mb=cached * BLOCK / 1e6)
        with storage.open("data") as file:
            for epoch in range(6):
                if epoch == 2:
                    storage.reset_counters()
                if shuffled:
                    rng.shuffle(blocks)
                for block in blocks:
                    file.seek(block * BLOCK)
                    file.read(1)
        return round(100 * storage.counters().hit_share)


def shuffled_hit_share() -> float:
    """Return the same share for shuffled reading."""
    return hit_percent(shuffled=True) / 100


def rates_below_two_workers() -> list[float]:
    """Return the simulated steps per second of 0 and 1 workers."""
    aus = [simulate(replace(LOOP, num_workers=w)).summary().au for w in (0, 1)]
    return [round(au * 1e3 / LOOP.step_ms, 1) for au in aus]


def changes_that_expose() -> int:
    """Count the changes that leave a fed GPU idle for more than a fifth of the time."""
    return sum(simulate(loop).summary().au < 0.8 for loop in CHANGED)


def gain_by_prefetching() -> float:
    """Measure the speed of one worker with a queue of 8 batches, relative to a queue of 2."""
    start_workers()
    loop = replace(LOOP, num_workers=1, steps=30)
    ahead, usual = (run_pipeline(replace(loop, prefetch_factor=d)) for d in (8, 2))
    return ahead.summary().au / usual.summary().au
