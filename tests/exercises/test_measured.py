"""Exercises that judge what a notebook has measured or counted: it is made up here."""

from dataclasses import replace
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, Subset

from course_utils.exercises.nb00.ex1_use_the_switches import JOB
from course_utils.exercises.nb00.ex2_write_a_loader import STORAGE
from course_utils.hardware.storage.calendar import Counters
from course_utils.hardware.storage.presets import StoragePreset, storage_preset
from course_utils.loading.events import NpzEvents, pad_collate
from course_utils.stories.clinic import CAUSES, NAMES, Clinic, discharge
from course_utils.teaching.exercise import Verdict, check
from course_utils.teaching.explorer import explorer
from course_utils.teaching.notebook import data_path
from keepfed.measure.simulate import Pipeline, simulate
from keepfed.measure.trace import Trace
from tests.exercises.solutions import assert_refused, solution

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")
NAIVE = Pipeline(read_ms=500, step_ms=100, steps=24, batch_size=32, sync=False)


SWITCHES = [
    ({"strategy": "naive", "workers": 1}, "todo", "Switch the strategy"),
    ({"strategy": "naive", "workers": 4}, "wrong", "does not use workers"),
    ({"strategy": "naive", "workers": 1, "load": 20}, "wrong", "easier"),
    ({"strategy": "CUDA prefetch", "workers": 1}, "wrong", "do not make the loading faster"),
    ({"strategy": "CUDA prefetch", "workers": 2, "step": 100}, "wrong", "easier"),
    ({"strategy": "prefetch", "workers": 4}, "wrong", "copy of each batch"),
    ({"strategy": "pinned", "workers": 2}, "wrong", "copy of each batch"),
    ({"strategy": "CUDA prefetch", "workers": 2}, "right", "overlap with computing"),
    ({"strategy": "CUDA prefetch", "workers": 4}, "right", "almost nothing"),
    ({"strategy": "streaming", "workers": 1}, "right", "overlap with computing"),
]


@pytest.mark.slow
def test_the_switches_are_judged() -> None:
    box = explorer(start={"load": 80, "step": 100})
    for state, status, says in SWITCHES:
        box.state = {**JOB, **state}
        verdict = check("00.1", box)
        assert (verdict.status, says in verdict.message) == (status, True), (state, verdict)


def test_something_else_than_the_explorer_is_refused() -> None:
    assert_refused(check("00.1", {"strategy": "workers"}), "This is a dict, not the explorer")


def loop(**changes: int) -> Trace:
    return simulate(replace(NAIVE, **changes))  # type: ignore[arg-type]


def with_ids(ids: list[Any] | None) -> Trace:
    trace = loop(num_workers=6)
    trace.sample_ids = ids
    return trace


def real_events() -> Subset[Any]:
    return Subset(NpzEvents(data_path("events")), range(768))


class Rounded(NpzEvents):
    """Events that save memory by half the precision, which the naive loader does not."""

    def __getitem__(self, index: int) -> Any:
        sample = super().__getitem__(index)
        return {**sample, "pulses": sample["pulses"].half().float()}


def _uncached(preset: str) -> StoragePreset:
    """Return the storage that notebook 00 creates."""
    return replace(storage_preset(preset), cache_mb=0)


def test_the_notebook_creates_the_storage_that_the_judge_expects() -> None:
    assert 'cu.slow_storage(folder, "busy Lustre", cache_mb=0)' in solution("00.2")
    assert _uncached("busy Lustre") == STORAGE


def judge_loader(
    fed: Trace | None, *, data: Any = None, opens: int = 768, preset: str = "busy Lustre", **of: Any
) -> Verdict:
    workers = sum(lane.startswith("worker") for lane in fed.lanes) if fed else 0
    options = {"batch_size": 32, "shuffle": True, "num_workers": workers, **of}
    options |= {"batch_size": 1, "shuffle": None} if "batch_sampler" in of else {}
    loader = DataLoader(
        real_events() if data is None else data, **{"collate_fn": pad_collate, **options}
    )
    storage = SimpleNamespace(counters=lambda: Counters(opens=opens), preset=_uncached(preset))
    return check("00.2", loader, loop(), fed, storage)


LOOPS = [
    (None, "todo", "It ended with an error"),
    (loop(), "todo", "naive"),
    (loop(num_workers=6, steps=5), "wrong", "not the same samples"),
    (loop(num_workers=6, batch_size=8, steps=96), "wrong", "not the same samples"),
    (loop(num_workers=2, prefetch_factor=16), "wrong", "but more workers do"),
    (with_ids([0] * 768), "wrong", "not the same samples"),
    (with_ids([*range(1, 769)]), "wrong", "not the same samples"),
    (with_ids(None), "wrong", "not the same samples"),
    (loop(step_ms=120, num_workers=4), "wrong", "1.2 times as long"),
    (loop(step_ms=50, num_workers=6), "wrong", "0.5 times as long"),
    (loop(num_workers=6, decode_ms=150, cores=1), "todo", "too busy to check"),
    (loop(num_workers=6), "right", "all distinct"),
]


def test_your_own_loader_is_checked() -> None:
    for fed, status, says in LOOPS:
        verdict = judge_loader(fed)
        assert (verdict.status, says in verdict.message) == (status, True), (fed, verdict)


def test_a_run_of_another_loader_is_to_be_repeated() -> None:
    for workers in 2, 6:
        verdict = judge_loader(loop(num_workers=workers), num_workers=4)
        assert verdict.status == "todo", verdict
        assert f"The run had {workers} workers, but my_loader has 4" in verdict.message


def test_pinning_alone_does_not_feed_the_gpu() -> None:
    assert_refused(judge_loader(loop(), pin_memory=True), "One process still loads every batch")


def cut(samples: list[Any]) -> Any:
    return pad_collate(samples[:1])


def test_another_job_and_a_fixed_order_are_refused() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"data": Rounded(data_path("events"))}, "For my_loader.dataset[0], result['pulses']"),
        ({"collate_fn": cut}, "For a batch of two events"),
        ({"preset": "laptop SSD"}, "The storage is emulated laptop SSD"),
        ({"opens": 700}, "only 700 of 768 files"),
        ({"shuffle": False}, "the same order"),
        ({"sampler": [*range(99, 768), *range(99)], "shuffle": None}, "the same order"),
        ({"batch_sampler": [range(700, 768), range(700)]}, "the same order"),
    ]
    for changes, says in cases:
        assert_refused(judge_loader(loop(num_workers=6), **changes), says)


def test_a_batch_sampler_and_a_seeded_generator_pass() -> None:
    batches = BatchSampler(RandomSampler(range(768)), 32, drop_last=False)
    for options in ({"batch_sampler": batches}, {"generator": torch.Generator().manual_seed(0)}):
        verdict = judge_loader(loop(num_workers=6), **options)
        assert verdict.status == "right", verdict


def test_a_wrapper_around_a_loader_is_named() -> None:
    wrapped = SimpleNamespace(inner=DataLoader(real_events(), num_workers=6))
    storage = SimpleNamespace(counters=Counters, preset=_uncached("busy Lustre"))
    verdict = check("00.2", wrapped, loop(), loop(num_workers=6), storage)
    assert_refused(verdict, "asks for a DataLoader")


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Clinic:
    """Return a clinic that was asked once."""
    clinic = Clinic(7, tmp_path_factory.mktemp("clinic"))
    causes = discharge(clinic)
    next(loop for loop in clinic if causes[loop.name] == "storage").step_alone()
    return clinic


def test_a_clinic_without_answers_is_not_attempted(asked: Clinic) -> None:
    for answers in dict.fromkeys(NAMES, ...), {"A": "cpu"}, dict.fromkeys("abcdef", " "):
        assert check("03.1", asked, answers).status == "todo", answers
    assert_refused(check("03.1", asked, ["cpu"] * 6), "must be a dict")
    assert_refused(check("03.1", asked, {**discharge(asked), "A": "disk"}), "'disk' is not among")


def test_guessing_is_not_measuring(tmp_path: Path) -> None:
    clinic = Clinic(7, tmp_path)
    assert_refused(check("03.1", clinic, discharge(clinic)), "not used a single probe")


def test_six_right_causes_stay_right(asked: Clinic) -> None:
    verdict = check("03.1", asked, discharge(asked))
    assert verdict.status == "right"
    assert "All six, with 1 probe." in verdict.message
    assert check("03.1", asked, discharge(asked)) == verdict  # Run All checks the answer again


def test_a_wrong_cause_found_on_a_busy_machine_is_to_be_asked_again(
    asked: Clinic, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {**discharge(asked), "A": "cpu", "B": "cpu"}
    for was_busy in (False, True):
        monkeypatch.setattr(Clinic, "disturbed", was_busy)
        assert ("busy machine" in check("03.1", asked, answers).next_step) == was_busy


def test_every_mistaken_cause_is_explained(asked: Clinic) -> None:
    for said, true in permutations(CAUSES, 2):
        answers = discharge(asked)
        place = next(name for name, cause in answers.items() if cause == true)
        verdict = check("03.1", asked, {**answers, place: said})
        assert_refused(verdict, f"5 of 6 causes are right. One loop that you call {said!r} has")
