"""The blind clinic: a loop shows only its measurements, and these reveal the cause."""

import multiprocessing
import re
from pathlib import Path

import pytest

from course_utils.stories.clinic import CAUSES, Clinic, admit, discharge
from course_utils.stories.clinic import clinic as clinic_module
from course_utils.stories.clinic.clinic import Patient, cpu_use
from keepfed.measure.records import Fetch


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Clinic:
    return Clinic(3, tmp_path_factory.mktemp("clinic"))


def _loop(clinic: Clinic, cause: str) -> Patient:
    causes = discharge(clinic)
    return next(loop for loop in clinic if causes[loop.name] == cause)


def test_seed_determines_order_of_causes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = [tuple(discharge(Clinic(seed, tmp_path)).values()) for seed in (1, 1, 2, 3)]
    assert all(sorted(order) == sorted(CAUSES) for order in orders)
    assert orders[0] == orders[1]
    assert len(set(orders)) == 3
    monkeypatch.setattr(clinic_module, "scratch_folder", lambda: tmp_path)
    assert discharge(admit()) == discharge(admit())  # a folder keeps its seed
    (tmp_path / "clinic" / "seed.txt").write_text("spilt coffee")
    assert set(discharge(admit()).values()) == set(CAUSES)


@pytest.mark.slow
def test_repeated_probe_counts_once_and_opinion_follows_answer(tmp_path: Path) -> None:
    clinic = Clinic(3, tmp_path)
    for _ in range(2):
        next(iter(clinic)).step_alone()
    assert clinic.probes == 1
    assert re.search(r"1 probe .*\nA  step_alone    [\d.]+ steps/s, GPU busy", repr(clinic))
    assert "exercise 3.1" in str(clinic.second_opinion("A"))
    discharge(clinic)
    assert all("the name of a loop" in str(clinic.second_opinion(name)) for name in ("", "G"))


def _worker(*, cpu_ns: int, delay_ns: int = 0) -> list[Fetch]:
    fetches = Fetch(0, 0, 0, 0, total_cpu_ns=0), Fetch(0, 0, 0, 1000, total_cpu_ns=cpu_ns)
    return [fetch._replace(delay_ns=delay_ns) for fetch in fetches]


def test_waiting_for_a_core_does_not_count_as_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clinic_module, "has_delay", lambda: True)
    found = cpu_use([_worker(cpu_ns=480, delay_ns=500), _worker(cpu_ns=100)], 2)
    assert found["computes"] == (0.48, 0.1)
    assert found["sleeps"] == pytest.approx((0.02, 0.9))
    assert "compute 48 % and 10 % of the time, sleep 2 % and 90 %, and may" in found["sentence"]
    # values that the system does not report are omitted
    monkeypatch.setattr(clinic_module, "has_delay", lambda: False)
    found = cpu_use([_worker(cpu_ns=480)], -1)
    assert (found["computes"], found["sleeps"], found["cores"]) == ((0.48,), None, None)
    assert found["sentence"] == "The workers compute 48 % of the time."


@pytest.mark.slow
def test_loop_runs_with_every_start_method_and_cleans_up(start_method: str, tmp_path: Path) -> None:
    multiprocessing.set_start_method(start_method, force=True)
    loop = _loop(Clinic(5, tmp_path), "storage")
    assert loop.workers_cpu().cores != 0
    assert "worker 1" in loop.timeline().picture.traces[0].lanes
    assert not multiprocessing.active_children()
