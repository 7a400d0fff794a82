"""Diagnoses of loops whose cause is known, and of steps on the emulated GPU."""

import multiprocessing
from typing import Any

import pytest
import torch

from benchmarks.diagnose import loops
from course_utils.hardware.gpu import get_accelerator
from keepfed.measure.diagnosis import Diagnosis, diagnose
from tests.measure import datasets as data

ROWS = data.KINDS["map-style"]
TREES = pytest.param("IPC: trees of dicts", marks=pytest.mark.full)


def quick(loader: Any, step: Any = lambda batch: torch.zeros(()), **options: Any) -> Diagnosis:
    return diagnose(loader, step, **{"seconds": 0.2, **options})


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("name", ["storage, no workers", TREES, "Python in the step"])
def test_diagnose_finds_the_cause_of_a_known_loop(name: str, retry: Any) -> None:
    cause = loops.CAUSES[name]
    with loops.loop(loops.LOOPS[name]) as (loader, step):
        found = retry(lambda: diagnose(loader, step, seconds=6), lambda found: found.cause == cause)
    assert found.cause == cause, found.finding.measured


@pytest.mark.slow
def test_workers_of_every_start_method_end_without_output(
    start_method: str, capfd: pytest.CaptureFixture[str], retry: Any
) -> None:
    gpu = get_accelerator(step_ms=2, emulate=True)
    loader = ROWS(num_workers=1, multiprocessing_context=start_method)

    def diagnosed() -> Diagnosis:
        return quick(loader, lambda batch: gpu.step(gpu.upload(batch)).item(), seconds=0.1)

    # On a busy machine, a step may lose more time than starting an interpreter takes.
    found = retry(diagnosed, lambda one: start_method != "spawn" or one.cause == "start-up")
    assert found.measurements.setting.start_method == start_method
    assert found.measurements.fetching.fetch_s > 0
    assert not multiprocessing.active_children()
    assert capfd.readouterr() == ("", "")
    if start_method == "spawn":  # starts an interpreter and imports torch for 40 batches
        assert (found.cause, found.finding.change) == ("start-up", "persistent_workers=True")


def test_diagnose_waits_for_the_device() -> None:
    gpu, calls = get_accelerator(step_ms=10, emulate=True), []
    found = quick(ROWS(), lambda batch: gpu.step(gpu.upload(batch)) and None, seconds=1)
    assert found.measurements.paces.step_s >= 0.01
    assert found.measurements.step.compute_s == pytest.approx(0.01, rel=0.05)
    changed = data.KINDS["own functions"]()  # a step may change the containers of its batch
    quick(changed, lambda batch: batch.pop("event_id"), synchronize=lambda: calls.append(1))
    assert calls
