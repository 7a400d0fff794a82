"""Judges of code refuse unusable answers at once, and accept the code of the course."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from course_utils.stories.prefetchers import CONTRACT, OURS
from course_utils.teaching.exercise import check
from keepfed.loaders.prefetch import ThreadPrefetcher
from notebooks.build import for_learner
from tests.exercises.solutions import assert_refused, attempt, judge


@pytest.mark.parametrize("key", ["01.1", "05.1", "07.1"])
def test_what_lives_in_the_notebook_is_refused_before_a_worker_dies_of_it(
    key: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (answer,) = attempt(key, folder)
    monkeypatch.setattr(answer, "__module__", "__main__")
    assert_refused(check(key, answer), "is defined in the notebook")


@pytest.mark.parametrize(
    ("key", "part", "answer", "misconception"),
    [
        ("01.1", 0, lambda solution: lambda samples: solution(samples), "it is a lambda or"),
        ("01.3", 0, lambda kind: kind(None, "", []), "This is a dataset, not a class"),
        ("04.3", 0, lambda kind: kind(["one"]), "This is an instance, not a class. The check"),
        ("04.4", 0, lambda kind: kind(8), "This is a dataset, not a class. The check"),
        ("05.1", 0, lambda kind: kind([]), "This is a dataset, not a class"),
        ("06.3", 1, lambda _: lambda fs, folder, index: None, "A worker cannot import"),
        ("06.3", 1, lambda _: [1], "needs your two functions"),
    ],
)
def test_what_no_worker_can_use_is_refused(
    key: str, part: int, answer: Callable[[Any], Any], misconception: str, folder: Path
) -> None:
    parts = [*attempt(key, folder)]
    parts[part] = answer(parts[part])
    assert_refused(check(key, *parts), misconception)


@pytest.mark.slow
def test_the_prefetchers_of_the_course_are_right_and_leave_no_thread() -> None:
    before = set(threading.enumerate())
    assert check("05.3", ThreadPrefetcher).status == "right"
    for clause in CONTRACT.values():
        assert clause.observe(OURS) == clause.wanted, clause
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.slow
def test_the_check_leaves_the_learners_seed_alone(folder: Path) -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    judge("04.4", folder, ("self.length = length", "self.length = length + 1"))
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.slow
def test_the_first_pipeline_that_is_still_as_printed_is_named(folder: Path) -> None:
    printed, repaired = attempt("10.1", folder, version=for_learner), attempt("10.1", folder)
    verdict = check("10.1", repaired[0], printed[1], printed[2])
    assert_refused(verdict, "decoded samples of `mixed` wait")


def test_two_pipelines_are_refused(folder: Path) -> None:
    assert_refused(check("10.1", *attempt("10.1", folder)[:2]), "'complete'")
