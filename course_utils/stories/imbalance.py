"""Find rare events: a table and a classifier."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from course_utils.loading.events import CASCADE, read_labels

Floats = NDArray[np.float64]


def event_table(folder: Path) -> sqlite3.Connection:
    """Create a table `events` in memory with event_id, cascade (0 or 1), pulses and charge."""
    labels, offsets = read_labels(folder), np.load(folder / "npy" / "offsets.npy")
    charges = np.load(folder / "npy" / "pulses.npy", mmap_mode="r")[:, 1]
    charge = np.add.reduceat(charges, offsets[:-1], dtype=float)
    columns = labels.event_id, labels.kind == CASCADE, np.diff(offsets), charge
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE events (event_id, cascade, pulses, charge)")
    rows = zip(*(column.tolist() for column in columns), strict=True)
    database.executemany("INSERT INTO events VALUES (?, ?, ?, ?)", rows)
    return database


def fit(table: Floats) -> Callable[[Floats], Floats]:
    """Fit a logistic regression, and return a function from a table to probabilities per row.

    Args:
        table: the first column is 1 for rare events and 0 for others. The other columns are
            positive features, and the fit uses their logarithms.
    """
    rare, features = table[:, 0], np.log(table[:, 1:])
    mean, spread = features.mean(0), features.std(0)

    def design(features: Floats) -> Floats:
        return np.column_stack([np.ones(len(features)), (features - mean) / spread])

    x = design(features)
    weights = np.zeros(x.shape[1])
    for _ in range(20):  # Newton's method converges in a few steps
        probability = _logistic(x @ weights)
        curvature = x.T @ (x * (probability * (1 - probability))[:, None])
        weights += np.linalg.solve(curvature, x.T @ (rare - probability))
    return lambda table: _logistic(design(np.log(table[:, 1:])) @ weights)


def _logistic(x: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-x)))
