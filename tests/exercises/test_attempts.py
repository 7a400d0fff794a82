"""Every exercise: what is left to write is not attempted, what is right passes, slips are named."""

import multiprocessing
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from course_utils.exercises.nb05 import ex3_prefetch_in_a_thread
from course_utils.exercises.nb07 import ex1_stage_a_file
from course_utils.stories.prefetchers import trial
from notebooks.build import HERE
from tests.exercises.solutions import Change, assert_refused, attempts, judge, judge_stub

# these judge what a notebook has measured, or data that it has made: their own tests make that up
MADE_UP = {"00.1", "00.2", "03.1", "13.1"}
# their judges start processes, or wait for them: `make test` meets these solutions where whole
# notebooks run, and other right answers are for `make test-all`
START_PROCESSES = {"01.1", "01.3", "04.2", "05.1", "05.3", "07.1", "07.2", "08.1"}
START_PROCESSES |= {"10.1", "11.2", "11.3"}
SOURCES = [path.read_text("utf-8") for path in sorted((HERE / "source").glob("[0-9]*.py"))]
KEYS = [key for text in SOURCES for key in re.findall(r'^cu\.check\("(.+?)"', text, re.MULTILINE)]
HERE_JUDGED = [key for key in KEYS if key not in MADE_UP]
OTHER_WAYS = attempts(right=True)
SOLUTIONS = [pytest.param(key, "solution", [], id=f"{key} solution") for key in HERE_JUDGED]
QUICK = [one for one in (*SOLUTIONS, *OTHER_WAYS) if one.values[0] not in START_PROCESSES]


@pytest.mark.parametrize("key", HERE_JUDGED)
def test_a_stub_is_not_attempted(key: str, folder: Path) -> None:
    verdict = judge_stub(key, folder)
    assert verdict.status == "todo", verdict


@pytest.mark.parametrize(("key", "name", "changes"), QUICK)
def test_what_is_right_passes(key: str, name: str, changes: list[Change], folder: Path) -> None:
    verdict = judge(key, folder, *changes)
    assert verdict.status == "right", verdict


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:.*unclosed file:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("key", "name", "changes"),
    [one for one in (*SOLUTIONS, *OTHER_WAYS) if one.values[0] in START_PROCESSES],
)
def test_what_is_right_passes_however_workers_start(
    key: str, name: str, changes: list[Change], folder: Path, start_method: str
) -> None:
    multiprocessing.set_start_method(start_method, force=True)
    verdict = judge(key, folder, *changes)
    assert verdict.status == "right", verdict


@contextmanager
def _hurry() -> Iterator[None]:
    """Wait less than a learner's notebook does for what a wrong attempt never does."""
    with pytest.MonkeyPatch.context() as patch:
        timeouts = trial.Timeouts(hang=0.3, wake=0.2, settle=0.03, leave=0.25)
        patch.setattr(trial, "TIMEOUTS", timeouts)
        patch.setattr(ex3_prefetch_in_a_thread, "PAUSE_S", 0.2)
        patch.setattr(ex1_stage_a_file, "PATIENCE_S", 3.0)
        patch.setattr(ex1_stage_a_file, "SETTLE_S", 0.3)
        yield


@pytest.mark.parametrize(("key", "misconception", "changes"), attempts(right=False))
@pytest.mark.filterwarnings("ignore:.*unclosed file:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_wrong_attempt_is_explained(
    key: str,
    misconception: str,
    changes: list[Change],
    folder: Path,
    record_retry: Callable[[], None],
) -> None:
    with _hurry():
        verdict = judge(key, folder, *changes)
    if misconception not in repr(verdict):  # a slow attempt, or a busy machine
        record_retry()
        verdict = judge(key, folder, *changes)
    assert_refused(verdict, misconception)
