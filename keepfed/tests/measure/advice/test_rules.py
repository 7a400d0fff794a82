from typing import Any

import pytest

from keepfed.measure.advice.rules import judge, losses, slowest_stage
from tests.measure.handmade import hungry

LONG_STEP = {"step_s": 0.2, "together_s": 0.2}
BUSY = {**LONG_STEP, "step_delay_s": 0.13}  # other programs delay the step

QUICK = {"step_s": 0.006, "together_s": 0.011, "wait_s": 0.005, "fetch_s": 0.006}
QUICK |= {"computing_s": 0.002, "collate_s": 0.0, "workers": 4}


def test_measurements_decide_the_cause() -> None:
    for cause, changes in (
        ("CPU", {}),
        ("storage", {"computing_s": 0.02}),
        ("CPU", {"computing_s": 0.04, "delay_s": 0.06}),
        ("storage", {"computing_s": 0.02, "delay_s": 0.05}),
        ("CPU", {"computing_s": 0.02, "workers": 8, "cores": 1}),  # eight workers on one core
        ("GPU-bound", {"computing_s": 0.02, "delay_s": 0.08}),  # other programs take the cores
        ("CPU", {"worker_cores": 1, "computing_s": 0.05, "delay_s": 0.045}),
        ("storage", {"worker_cores": 1, "computing_s": 0.01}),  # waiting workers need only one core
        ("CPU", {"one_thread_gain": 3.0, "computing_s": 0.04}),
        ("collate or IPC", {"sending_s": 0.2}),
        ("collate or IPC", {"collate_s": 0.06}),
        ("uneven", {"slow_share": 0.1, "slow_time": 0.7}),
        ("uneven", {"slow_share": 0.36, "slow_time": 0.7}),  # a slow sample in every third batch
        ("CPU", {"slow_share": 0.1, "slow_time": 0.7, "one_thread_gain": 3.0}),  # irregular
        ("CPU", {"slow_share": 0.6, "slow_time": 0.7}),  # too many slow fetches to be exceptions
        # each worker pauses, but sending costs far more than fetching
        ("collate or IPC", {"slow_share": 0.1, "slow_time": 0.7, "sending_s": 0.2}),
        # the workers are fast enough, but the main process unpickles half of the time
        ("collate or IPC", {**QUICK, "receiving_s": 0.004, "sending_s": 0.01}),
        ("GPU-bound", {**QUICK, "receiving_s": 0.0005, "sending_s": 0.01}),
        ("GPU-bound", {"wait_s": 0.001}),
        ("GPU-bound", {"together_s": 0.022}),
        ("start-up", {"start_up_s": 100.0}),
        ("CPU", {"start_up_s": 100.0, "epoch": None}),  # an endless epoch starts once
        ("transfer", {**LONG_STEP, "transfer_s": 0.1, "compute_s": 0.1}),
        ("main process", {**LONG_STEP, "host_s": 0.1, "compute_s": 0.1}),
        # the loss itself is unchanged
        ("main process", {**BUSY, "host_s": 0.03, "compute_s": 0.04}),
        ("memory", {"batch_bytes": 10**9, "free_bytes": 8e9}),
        ("memory", {"together_s": 0.022, "grown_bytes": 2e8, "own_bytes": 2e7}),
        ("GPU-bound", {"together_s": 0.022, "grown_bytes": 2e8, "own_bytes": 2e9}),
        ("CPU", {"grown_bytes": 2e8, "own_bytes": 2e7}),  # a larger loss, and enough memory
        ("memory", {"grown_bytes": 1e8, "grown_late_bytes": 5e7, "watched": 10, "free_bytes": 8e9}),
    ):
        assert judge(hungry(**changes)) == cause, cause


IDLE: dict[str, Any] = {"computing_s": 0.02, "delay_s": 0.08}  # without other programs


def test_waiting_for_the_loader_is_a_loss() -> None:
    for loses, changes in (
        (False, {"together_s": 0.02, "wait_s": 0.015}),  # the wait did not delay the device
        (False, {"together_s": 0.05, "wait_s": 0.0}),  # the loop is slower but never waits
        (False, IDLE),  # workers with time to spare
        (True, {**IDLE, "slow_share": 0.01, "slow_time": 0.7}),
        (True, {**IDLE, "workers": 0}),
        (True, {**IDLE, "worker_cores": 1}),
    ):
        assert (losses(hungry(**changes))["loader"] > 0) is loses, loses


def test_headroom_waiting_and_slowest_stage_are_computed() -> None:
    assert hungry(start_up_s=9.0, epoch=1000).headroom == pytest.approx(3.0)
    assert hungry(together_s=0.019).headroom == 1.0
    assert hungry(fetch_s=0.1, computing_s=0.03, delay_s=0.02).waiting_s == pytest.approx(0.05)
    assert hungry(fetch_s=0.1, computing_s=0.2).waiting_s == 0
    stages = {"read": 9.0, "decode": 2.0, "transform": 1.0}  # read does not compute
    assert (slowest_stage(hungry(stages=stages)), slowest_stage(hungry())) == ("decode", "")
