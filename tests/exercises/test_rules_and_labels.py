"""Exercises 07.3, 08.3, 09.1 and 09.3: each slip in a rule and each wrong label is named."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from course_utils.loading.workers import ShmBudget
from course_utils.teaching.exercise import check
from notebooks.exercises.nb04 import ex1_choose_workers
from notebooks.exercises.nb07 import ex3_stage_how_much
from notebooks.exercises.nb07.problem import JOBS, Job
from notebooks.exercises.nb08 import ex3_where_to_augment
from notebooks.exercises.nb08 import problem as nb08
from notebooks.exercises.nb09 import ex3_when_pinning_loses
from notebooks.exercises.nb09.ex1_label_the_defects import LABELS
from notebooks.exercises.nb09.problem import CASES, CAUSES, SYMPTOMS
from tests.exercises.solutions import Change, Wrong, assert_refused, judge, wrong_answers

IN_FLIGHT = "job.workers * job.prefetch_factor + 1 if job.workers else 0"
ROOM = "max(0, min(job.shm_mb - travelling, job.memory_mb - used))"
IN_WORKERS, ON_DEVICE = '    return "CPU", in_workers', '        return "GPU", on_device'
DEVICE_MS = "max(job.step_ms + job.augment_gpu_ms, job.load_ms / job.cores)"
WORKERS_MS = "max(job.step_ms, (job.load_ms + job.augment_cpu_ms) / job.cores)"
SUM_MS = "job.step_ms + (job.load_ms + job.augment_cpu_ms) / job.cores"
IF_BETTER = "if job.augment_mb <= job.free_mb and on_device < in_workers"
LOOP = "max(case.load_ms, host_ms + case.step_ms)"


WRONG: Wrong = {
    "07.3": [
        ("You fill /dev/shm to the brim", (ROOM, "job.shm_mb")),
        ("You look at the size of /dev/shm only", (ROOM, "job.shm_mb - travelling")),
        ("You look at the memory only", (ROOM, "max(0, job.memory_mb - used)")),
        ("in /dev/shm you have not", ("job.shm_mb - travelling", "job.shm_mb")),
        ("in the memory you have not", ("job.worker_mb + travelling", "job.worker_mb")),
        ("a process with a memory of its own", (" + job.workers * job.worker_mb", "")),
        ("You forget the training program", ("job.program_mb + ", "")),
        ("one more is in use", (IN_FLIGHT, "job.workers * job.prefetch_factor"), ("max(0, ", "(")),
        ("more than one batch ready", (IN_FLIGHT, "job.workers")),
        ("more than one batch ready", ("* job.prefetch_factor ", "")),
        ("where there are no workers", (" if job.workers else 0", "")),
        ("less than nothing", (ROOM, "min(job.shm_mb - travelling, job.memory_mb - used)")),
        ("less than there is room for", (ROOM, f"min(5_000, {ROOM})")),
        ("too much: the job dies", (ROOM, f"{ROOM} + 1")),
        ("which is no number of MB", ("return", "job =")),
    ],
    "08.3": [
        ("You always augment on the GPU", (IF_BETTER, "if True")),
        ("You always augment in the workers", (IF_BETTER, "if False")),
        ("You do not look at the memory", ("job.augment_mb <= job.free_mb and ", "")),
        ("the augmentation is free in your model", (" + job.augment_gpu_ms", "")),
        ("augment and compute at the same time", ("step_ms + job.aug", "step_ms, job.aug")),
        (
            "you forget that the workers still read and decode",
            (DEVICE_MS, "job.step_ms + job.augment_gpu_ms"),
        ),
        (
            "You add the loading to the step",
            (DEVICE_MS, "job.step_ms + job.augment_gpu_ms + job.load_ms / job.cores"),
        ),
        (
            "You add loading and computing",
            (WORKERS_MS, SUM_MS),
            (DEVICE_MS, "job.step_ms + job.augment_gpu_ms + job.load_ms / job.cores"),
        ),
        ("You let one core do it all", (" / job.cores", "")),
        (
            "you count the augmentation only",
            ("(job.load_ms + job.augment_cpu_ms)", "job.augment_cpu_ms"),
        ),
        (
            "the time is that of the other one",
            (IN_WORKERS, '    return "CPU", on_device'),
            (ON_DEVICE, '        return "GPU", in_workers'),
        ),
        (
            "In the workers a step takes 60 ms, on the device 33 ms",
            (ON_DEVICE, '        return "GPU", on_device / 2'),
        ),
        ("not a place and a time", ('return "GPU", ', "return ")),
        ("the place is 'cuda'", ('"GPU"', '"cuda"')),
        ("which is no number of ms", (ON_DEVICE, '        return "GPU", f"{on_device} ms"')),
    ],
    "09.3": [
        ("the device takes 4.86", ("host_ms = case.mb", "host_ms = 1000 * case.mb")),
        ("no number of milliseconds", (f"return {LOOP}", "return None")),
    ],
}


@pytest.mark.parametrize(("key", "misconception", "changes"), wrong_answers(WRONG))
def test_a_wrong_rule_is_explained(
    key: str, misconception: str, changes: list[Change], folder: Path
) -> None:
    assert_refused(judge(key, folder, *changes), misconception)


@pytest.mark.parametrize(
    ("key", "rule", "misconception"),
    [
        pytest.param(key, rule, misconception, id=f"{key} {misconception}")
        for key, slips in {
            "04.1": ex1_choose_workers.SLIPS,
            "07.3": ex3_stage_how_much.SLIPS,
            "08.3": ex3_where_to_augment.SLIPS,
            "09.3": ex3_when_pinning_loses.SLIPS,
        }.items()
        for rule, misconception, _ in slips
    ],
)
def test_the_cases_tell_each_slip_from_the_others(
    key: str, rule: Callable[[Any], Any], misconception: str
) -> None:
    assert_refused(check(key, rule), misconception)


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_the_room_is_what_the_course_computes(job: Job) -> None:
    budget = ShmBudget(
        round(job.batch_mb * 1e6),
        job.workers,
        memory_bytes=round(job.memory_mb * 1e6),
        prefetch_factor=job.prefetch_factor,
        shm_bytes=round(job.shm_mb * 1e6),
        programs_bytes=round((job.program_mb + job.workers * job.worker_mb) * 1e6),
    )
    assert ex3_stage_how_much.room(job) == budget.stageable_bytes / 1e6


def test_the_jobs_that_are_shown_are_decided_by_different_things() -> None:
    room = {name: ex3_stage_how_much.room(job) for name, job in JOBS.items()}
    assert room == {"container": 24, "laptop": 7_730, "cluster node": 69_500}
    answers = [ex3_where_to_augment.decide(job) for job in nb08.JOBS.values()]
    assert answers == [("GPU", 33), ("CPU", 200), ("CPU", 60)]


@pytest.mark.parametrize("name", CASES)
def test_the_formula_is_what_the_device_measures(name: str) -> None:
    measured = ex3_when_pinning_loses.measure_ms(CASES[name])
    assert measured == pytest.approx(ex3_when_pinning_loses.predicted_ms(CASES[name]), abs=1e-3)


@pytest.mark.parametrize("letter", SYMPTOMS)
def test_every_other_label_meets_an_objection_and_a_question(letter: str) -> None:
    for cause in CAUSES.keys() - {LABELS[letter]}:
        assert_refused(check("09.1", *{**LABELS, letter: cause}.values()), f"({letter})")


@pytest.mark.parametrize(
    ("letter", "cause", "misconception"),
    [
        ("f", "silent thread", "what has it died of?"),
        ("h", "no record_stream", "the first batch too"),
        ("d", "pageable memory", "in the queue of the steps"),
        ("a", "no such cause", "not among the causes"),
    ],
)
def test_a_close_label_is_told_apart(letter: str, cause: str, misconception: str) -> None:
    assert_refused(check("09.1", *{**LABELS, letter: cause}.values()), misconception)


def test_labels_that_are_missing_are_asked_for() -> None:
    assert_refused(check("09.1", "thread in __init__"), "you give 1 causes")
