"""The checks of notebook 07: stubs are not attempted, solutions right, typical slips named."""

import builtins
import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from course_utils.teaching.exercise import check
from notebooks.build import for_learner, with_solutions
from notebooks.exercises.nb07 import child as nb07_child
from notebooks.exercises.nb07 import ex1_stage_a_file as nb07_staging
from notebooks.exercises.nb07 import site as nb07_site
from notebooks.exercises.nb07.ex3_stage_how_much import room
from notebooks.exercises.nb07.problem import JOBS, Job
from tests.exercises import attempts_nb07 as staging
from tests.exercises import attempts_nb07_cache as caches
from tests.exercises.answers import answer, assert_refused

ANSWERS = {"07.1": "stage", "07.2": "Cached", "07.3": "stageable_mb"}
GIVEN = {
    "07.1": "import os, shutil\nfrom pathlib import Path\nfrom filelock import FileLock",
    "07.2": "import torch\nfrom torch.utils.data import Dataset",
    "07.3": "from notebooks.exercises.nb07.problem import Job",
}

Budget = Callable[[Job], Any]


def _answer(key: str, version: Any, folder: Path) -> Any:
    return answer("07", ANSWERS[key], version, folder, given=GIVEN[key])


@pytest.mark.parametrize("key", ANSWERS)
def test_a_stub_is_not_attempted(key: str, folder: Path) -> None:
    assert check(key, _answer(key, for_learner, folder)).status == "todo"


@pytest.mark.parametrize("key", ["07.1", "07.3"])
def test_the_solution_is_right(key: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nb07_staging, "SETTLE_S", 0.3)
    verdict = check(key, _answer(key, with_solutions, folder))
    assert verdict.status == "right", verdict


@pytest.mark.slow
def test_the_cache_of_the_solution_is_right_however_workers_start(
    folder: Path, start_method: str
) -> None:
    multiprocessing.set_start_method(start_method, force=True)
    verdict = check("07.2", _answer("07.2", with_solutions, folder))
    assert verdict.status == "right", verdict


def test_another_way_to_stage_is_right_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nb07_staging, "SETTLE_S", 0.3)
    verdict = check("07.1", staging.by_hand)
    assert verdict.status == "right", verdict


@pytest.mark.parametrize(
    ("attempt", "misconception"),
    [
        (staging.as_in_the_lecture, "The next one took what lay there for the file"),
        (staging.by_shell, "The copy has 0 bytes"),
        (staging.unchecked_program, "stage returned as if all were well"),
        (staging.link, "a link to the source"),
        (staging.elsewhere, "the copy belongs into"),
        (staging.always_copies, "reads the whole source again"),
        (staging.compares_checksums, "reads the whole source again"),
        (staging.forgets_the_time, "reads the whole source again"),
        (staging.compares_sizes_only, "(newer), and stage returned the old ones"),
        (staging.like_make, "dated earlier"),
        (staging.under_the_final_name, "half a file lies under the final name"),
        (staging.a_name_for_each, "nobody gives it back"),
        (staging.leaves_the_half, "the full /dev/shm stays full"),
        (staging.swallows, "There was room for half of the file, and stage returned"),
        (staging.no_lock, "both copied"),
        (staging.lock_after_looking, "both copied"),
        (staging.stops, "no such thing"),
        (staging.leaves_the_process, "nobody had killed it"),
    ],
)
def test_a_wrong_way_to_stage_is_explained(attempt: Any, misconception: str) -> None:
    assert_refused(check("07.1", attempt), misconception)


@pytest.mark.slow
def test_a_lock_that_outlives_its_process_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nb07_site, "PATIENCE_S", 2.0)
    verdict = check("07.1", staging.lock_file_of_its_own)
    assert_refused(verdict, "a lock file that a killed process left behind")


def test_a_function_of_the_notebook_is_refused_before_a_process_dies_of_it() -> None:
    code: dict[str, Any] = {"__name__": "__main__"}
    exec("def stage(source, place):\n    return source\n", code)
    assert_refused(check("07.1", code["stage"]), "lives in the notebook")


def test_where_the_system_limits_no_files_what_open_returns_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builtins, "open", open)  # to be undone
    nb07_child.limit_open(10, deadly=False)
    with open(tmp_path / "file", "wb") as file:
        file.write(b"12345678")
        with pytest.raises(OSError, match="too large"):
            file.write(b"12345678")
    assert (tmp_path / "file").read_bytes() == b"1234567812"


@pytest.mark.slow
@pytest.mark.parametrize("attempt", [caches.Cached, caches.FilledAtOnce])
def test_a_right_cache_passes(attempt: type[Any]) -> None:
    verdict = check("07.2", attempt)
    assert verdict.status == "right", verdict


@pytest.mark.parametrize(
    ("attempt", "misconception"),
    [
        (caches.NothingKept, "nothing is kept"),
        (caches.ReadsTwice, "the first epoch makes 121 requests"),
        (caches.LeastRecentlyUsed, "you throw out the sample that is needed next"),
        (caches.IgnoresTheBudget, "More is kept than that"),
        (caches.OneAtLeast, "1 came without a request"),
        (caches.HalfTheRoom, "room is unused"),
        (caches.GivesItselfAway, "it gave away its own memory"),
        (caches.ShortByOne, "has 59 with your cache around it"),
        (caches.Lists, "is list; the dataset gives a tensor"),
    ],
)
def test_a_wrong_cache_is_explained(attempt: type[Any], misconception: str) -> None:
    assert_refused(check("07.2", attempt), misconception)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("attempt", "misconception"),
    [
        (caches.InADict, "each had its own copy of the dataset"),
        (caches.NextFreePlace, "Two samples were kept in one place"),
    ],
)
def test_a_cache_that_fails_in_workers_is_explained(attempt: type[Any], misconception: str) -> None:
    assert_refused(check("07.2", attempt), misconception)


def _used(job: Job, batches: float) -> float:
    return job.program_mb + job.workers * job.worker_mb + batches * job.batch_mb


def _batches(job: Job) -> int:
    return job.workers * job.prefetch_factor + 1 if job.workers else 0


WRONG: list[tuple[Budget, str]] = [
    (lambda job: job.shm_mb, "You fill /dev/shm to the brim"),
    (
        lambda job: job.shm_mb - _batches(job) * job.batch_mb,
        "You look at the size of /dev/shm only",
    ),
    (
        lambda job: max(0, job.memory_mb - _used(job, _batches(job))),
        "You look at the memory only",
    ),
    (
        lambda job: max(0, min(job.shm_mb, job.memory_mb - _used(job, _batches(job)))),
        "In the memory you have counted the batches, in /dev/shm you have not",
    ),
    (
        lambda job: max(
            0, min(job.shm_mb - _batches(job) * job.batch_mb, job.memory_mb - _used(job, 0))
        ),
        "In /dev/shm you have counted the batches, in the memory you have not",
    ),
    (
        lambda job: min(
            job.shm_mb - job.workers * job.prefetch_factor * job.batch_mb,
            job.memory_mb - _used(job, job.workers * job.prefetch_factor),
        ),
        "one more is in use",
    ),
    (
        lambda job: min(
            job.shm_mb - job.workers * job.batch_mb, job.memory_mb - _used(job, job.workers)
        ),
        "more than one batch ready",
    ),
    (
        lambda job: max(
            0,
            min(
                job.shm_mb - _batches(job) * job.batch_mb,
                job.memory_mb - job.program_mb - _batches(job) * job.batch_mb,
            ),
        ),
        "every worker is a process with a memory of its own",
    ),
    (lambda job: min(room(job), 5_000), "less than there is room for"),
    (lambda job: room(job) + 1, "too much: the job dies"),
    (lambda job: None, "which is no number of MB"),
]


@pytest.mark.parametrize(("attempt", "misconception"), WRONG)
def test_a_wrong_budget_is_explained(attempt: Budget, misconception: str) -> None:
    assert_refused(check("07.3", attempt), misconception)


def test_less_than_nothing_is_explained() -> None:
    def below_zero(job: Job) -> float:
        batches = _batches(job)
        return min(job.shm_mb - batches * job.batch_mb, job.memory_mb - _used(job, batches))

    assert_refused(check("07.3", below_zero), "less than nothing")


def test_the_jobs_that_are_shown_are_limited_by_different_things() -> None:
    left = {name: room(job) for name, job in JOBS.items()}
    assert left == {"container": 24, "laptop": 7_730, "cluster node": 69_500}
