from __future__ import annotations

from typing import Any

import pytest

from course_utils.measure.diagnosis import Cause
from course_utils.measure.diagnosis.remedy import gain, pipeline, remedy, turn_ms
from tests.measure.handmade import hungry


@pytest.mark.parametrize(
    ("changes", "cause", "says", "change"),
    [
        (
            {"computing_s": 0.01},
            "storage",
            "a worker waits 90 ms and computes 10 ms",
            "num_workers=8",
        ),
        ({"computing_s": 0.01, "workers": 16}, "storage", "Storage: ", "local disk"),
        (
            {"workers": 0, "step_s": 0.05},
            "CPU",
            "CPU in the dataset: a fetch computes",
            "num_workers=4",
        ),
        ({"workers": 4}, "CPU", "CPU in the dataset: ", "do what the dataset computes once"),
        ({"workers": 4, "stages": {"decode": 0.1}}, "CPU", "CPU in the stage decode: ", "'decode'"),
        ({"worker_cores": 1}, "CPU", "the 2 workers share 1 core of 4", "all 4 cores"),
        (
            {"one_thread_gain": 3.0},
            "CPU",
            "2 workers with 1 threads each",
            "worker_init_fn=course_utils.loading.workers",
        ),
        ({"one_thread_gain": 3.0, "workers": 0}, "CPU", "1 process with", "OMP_NUM_THREADS=1"),
        ({"workers": 0, "collate_s": 0.09}, "collate or IPC", "Collate: ", "num_workers="),
        ({"workers": 4, "collate_s": 0.09}, "collate or IPC", "Collate: ", "torch.stack"),
        (
            {"sending_s": 0.2, "pickle_s": 0.1},
            "collate or IPC",
            "IPC: to move a batch",
            "return tensors",
        ),
        (
            {"sending_s": 0.2, "batch_bytes": 10**8},
            "collate or IPC",
            "IPC: to move a batch",
            "uint8",
        ),
        (
            {"collate_s": 0.09, "batch_bytes": 10**8},
            "collate or IPC",
            "copying the 100 MB",
            "uint8",
        ),
        ({"transfer_s": 0.02}, "transfer", "20 ms are copies", "pin_memory=True"),
        ({"host_s": 0.02}, "main process", "nothing to do for 20 ms", "every 50 steps"),
        (
            {"start_up_s": 10.0, "epoch": 20},
            "start-up",
            "each epoch of 20 batches begins",
            "persistent_workers=True",
        ),
        ({"start_up_s": 10.0, "epoch": 20, "workers": 0}, "start-up", "Start-up: ", "do once"),
        ({"grown_bytes": 2e8}, "memory", "grew from 0 B by 200 MB", "PackedStrings"),
        ({"batch_bytes": 10**9}, "memory", "2 x 2 + 1 batches of", "prefetch_factor=1"),
        ({"slow_time": 0.7}, "uneven", "take 70 % of the time", "in_order=False"),
        ({}, "GPU-bound", "leave it alone", "leave the loader alone"),
    ],
)
def test_each_cause_is_said_in_a_sentence_and_has_one_concrete_change(
    changes: dict[str, Any], cause: Cause, says: str, change: str
) -> None:
    found = remedy(hungry(**changes), cause)
    assert says in found.verdict
    assert found.verdict.endswith(".")
    assert ". " not in found.verdict
    assert change in found.change
    assert found.gain >= 1


def test_the_prediction_is_that_of_the_formula() -> None:
    waits = hungry(workers=1, fetch_s=0.08, computing_s=0.0, collate_s=0.0, sending_s=0.0)
    assert turn_ms(pipeline(waits)) == pytest.approx(80, rel=0.01)
    assert gain(waits, num_workers=2) == pytest.approx(2, rel=0.02)
    assert gain(waits, num_workers=8) == pytest.approx(4, rel=0.02)  # then the step is the limit


def test_more_workers_than_cores_do_not_compute_more() -> None:
    computes = hungry(fetch_s=0.1, computing_s=0.1, collate_s=0.0, cores=2, worker_cores=2)
    assert gain(computes, num_workers=8) == pytest.approx(1, rel=0.1)
