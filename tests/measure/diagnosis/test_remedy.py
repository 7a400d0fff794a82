from __future__ import annotations

import re
from typing import Any

import pytest

from course_utils.measure.diagnosis import Cause
from course_utils.measure.diagnosis.remedy import gain, pipeline, remedy, turn_ms
from tests.measure.handmade import hungry

IPC: Cause = "collate or IPC"
BIG = 10**8


@pytest.mark.parametrize(
    ("cause", "changes", "says"),
    [
        ("storage", {"computing_s": 0.01}, "a worker waits 90 ms and computes 10 ms.*workers=8"),
        ("storage", {"computing_s": 0.01, "workers": 16}, "a local disk"),
        ("CPU", {"workers": 0, "step_s": 0.05}, "CPU in the dataset: a fetch.*num_workers=4"),
        ("CPU", {"workers": 4}, "do what the dataset computes once"),
        (
            "CPU",
            {"workers": 4, "stages": {"read": 0.01, "decode": 0.09}},
            "decode: .* 90 % of it.*'",
        ),
        ("CPU", {"worker_cores": 1}, "the 2 workers share 1 core of 4.*use all 4 cores"),
        (
            "CPU",
            {"one_thread_gain": 3.0},
            "2 workers with 1 threads.*=course_utils.loading.workers",
        ),
        ("CPU", {"one_thread_gain": 3.0, "workers": 0}, "1 process with.*OMP_NUM_THREADS=1"),
        (IPC, {"workers": 0, "collate_s": 0.09}, "Collate: .*num_workers="),
        (IPC, {"workers": 4, "collate_s": 0.09}, "Collate: .*torch.stack"),
        (IPC, {"sending_s": 0.2, "pickle_s": 0.1}, "to move a batch.*return tensors"),
        (IPC, {"sending_s": 0.2, "batch_bytes": BIG}, "to move a batch.*uint8"),
        (IPC, {"collate_s": 0.09, "batch_bytes": BIG}, "copying the 100 MB.*uint8"),
        ("transfer", {"transfer_s": 0.02}, "20 ms are copies.*pin_memory=True"),
        ("main process", {"host_s": 0.02}, "nothing to do for 20 ms.*every 50 steps"),
        (
            "start-up",
            {"start_up_s": 10.0, "epoch": 20},
            "each epoch of 20.*persistent_workers=True",
        ),
        ("start-up", {"start_up_s": 10.0, "epoch": 20, "workers": 0}, "do once"),
        ("memory", {"grown_bytes": 2e8}, "grew from 0 B by 200 MB.*PackedStrings"),
        ("memory", {"batch_bytes": BIG}, "2 x 2 . 1 batches of 100 MB.*prefetch_factor=1"),
        ("uneven", {"slow_time": 0.7}, "take 70 % of the time.*in_order=False"),
        ("GPU-bound", {}, "leave it alone.*leave the loader alone"),
    ],
)
def test_each_cause_is_said_in_a_sentence_and_has_one_concrete_change(
    cause: Cause, changes: dict[str, Any], says: str
) -> None:
    found = remedy(hungry(**changes), cause)
    assert re.search(says, f"{found.verdict} {found.change}")
    assert found.verdict.endswith(".")
    assert ". " not in found.verdict
    assert found.gain >= 1


def test_the_prediction_is_that_of_the_formula() -> None:
    waits = hungry(workers=1, fetch_s=0.08, computing_s=0.0, collate_s=0.0, sending_s=0.0)
    assert turn_ms(pipeline(waits)) == pytest.approx(80, rel=0.01)
    assert gain(waits, num_workers=2) == pytest.approx(2, rel=0.02)
    assert gain(waits, num_workers=8) == pytest.approx(4, rel=0.02)  # then the step is the limit
    computes = hungry(fetch_s=0.1, computing_s=0.1, collate_s=0.0, cores=2, worker_cores=2)
    assert gain(computes, num_workers=8) == pytest.approx(1, rel=0.1)  # there are no more cores
