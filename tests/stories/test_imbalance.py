from pathlib import Path

import numpy as np
import pytest

from course_utils.loading.events import CASCADE, read_labels
from course_utils.stories.imbalance import event_table, fit


def test_table_has_one_row_per_event(events_folder: Path) -> None:
    labels, database = read_labels(events_folder), event_table(events_folder)
    rows = np.array(database.execute("SELECT * FROM events").fetchall())
    offsets = np.load(events_folder / "npy" / "offsets.npy")
    pulses = np.load(events_folder / "npy" / "pulses.npy")
    assert (rows[:, 0] == labels.event_id).all()
    assert (rows[:, 1] == (labels.kind == CASCADE)).all()
    assert rows[7, 2] == offsets[8] - offsets[7]
    assert rows[7, 3] == pytest.approx(pulses[offsets[7] : offsets[8], 1].sum())


def test_probabilities_match_frequencies_of_training_set() -> None:
    rng = np.random.default_rng(0)
    rare = rng.random(20_000) < 0.05
    table = np.column_stack([rare, np.exp(rng.normal(2.0 * rare))])
    balanced = table[rare | (np.arange(len(rare)) % 19 == 0)]
    assert fit(table)(table).mean() == pytest.approx(0.05, abs=0.005)
    assert fit(balanced)(balanced).mean() == pytest.approx(0.5, abs=0.03)
    assert fit(balanced)(table).mean() > 0.15
