"""Run loaders alternately, each in a separate process, so that load affects all of them equally."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from benchmarks.peers import tables
from course_utils.stories.peers.measure import Measurement
from course_utils.stories.peers.tables import Table
from course_utils.stories.peers.trial import LoaderProcess

ROUNDS, QUICK_ROUNDS, QUICK_S = 3, 21, 0.4  # an epoch below QUICK_S is repeated QUICK_ROUNDS times


def measure(key: str, table: Table, folder: Path) -> tuple[dict[str, Measurement], dict[str, str]]:
    """Run all loaders of a table alternately, after a warm-up epoch of each.

    Args:
        key: Name of the table in `benchmarks.peers`.
        table: Table of loaders.
        folder: Folder of their files, which are created if necessary.

    Returns:
        The measurement of each loader, and the reason for each one that was left out.
    """
    trials: list[LoaderProcess] = []
    try:
        for name in table.peers:
            trials.append(LoaderProcess(tables.__name__, key, name, table, folder))
            trials[-1].run(0)  # one at a time, because the first one writes the files
        for number in range(1, QUICK_ROUNDS + 1):
            for trial in trials:
                quick = bool(trial.epochs) and trial.epochs[0].seconds < QUICK_S
                if quick or number <= ROUNDS:
                    trial.run(number)
        rows = {trial.name: _median(trial.epochs[1:]) for trial in trials if not trial.failed}
        return rows, {trial.name: trial.failed for trial in trials if trial.failed}
    finally:
        for trial in trials:
            trial.close()


def _median(epochs: list[Measurement]) -> Measurement:
    """Return the median epoch, with the counts of an incomplete one if there is one."""
    epochs = sorted(epochs, key=lambda epoch: epoch.seconds)
    books = next((epoch.books for epoch in epochs if not epoch.books.complete), epochs[0].books)
    return replace(epochs[len(epochs) // 2], books=books)
