"""The check of exercise 9.2: other right prefetchers pass, each typical slip is named."""

from pathlib import Path
from typing import Any

import pytest

from course_utils.loading.prefetch import CudaPrefetcher
from course_utils.teaching.exercise import check
from notebooks.stories.prefetchers import trial
from tests.exercises.solutions import Change, after, assert_refused, before, judge, solution

STAGE = "with self.gpu.stream(self.copies):"
COPIES = "self.copies = self.gpu.Stream()"
STAGED = "staged, error, batches = deque(), None, iter(self.loader)"
_, _, WITHOUT_THREAD = solution("09.2").partition("    def __iter__(self):\n")
WITH_THREAD = """\
        ready, stop, room = Queue(), threading.Event(), threading.Semaphore(self.depth)
        thread = threading.Thread(target=self.fill, args=(ready, stop, room), daemon=True)
        thread.start()
        try:
            while True:
                staged, error = ready.get()
                room.release()
                if error is not None:
                    raise error
                if staged is None:
                    return
                yield self.hand_over(*staged.pop())
        finally:
            stop.set()
            room.release()
            thread.join()

    def fill(self, ready, stop, room):
        try:
            for batch in self.loader:
                room.acquire()
                if stop.is_set():
                    return
                ready.put(([self.stage(batch)], None))
            ready.put((None, None))
        except Exception as error:
            ready.put((None, error))
"""
THREADED = [
    (WITHOUT_THREAD, WITH_THREAD),
    ("class Prefetcher", "import threading\nfrom queue import Queue\n\nclass Prefetcher"),
]
TOLD_TO_STOP = "            stop.set()\n            room.release()\n"


def _ours(loader: Any, devices: Any, depth: int = 1) -> CudaPrefetcher:
    return CudaPrefetcher(loader, devices.current(), depth=depth)


@pytest.mark.parametrize(
    "changes",
    [
        THREADED,
        [after("user.wait_event(arrived)", "arrived.synchronize()")],
        [
            before(STAGE, "self.copies.wait_stream(self.gpu.current_stream())"),
            ("leaf.record_stream(user)", "pass"),
        ],
    ],
    ids=["a thread", "the host waits", "copies wait for steps"],
)
def test_another_right_prefetcher_is_right(changes: list[Change], folder: Path) -> None:
    verdict = judge("09.2", folder, *changes)
    assert verdict.status == "right", verdict


def test_the_prefetcher_of_the_course_is_right() -> None:
    verdict = check("09.2", _ours)
    assert verdict.status == "right", verdict


WRONG = [
    (
        "The loop waits for ever",
        [before("if not isinstance(error", "threading.Event().wait(5)"), THREADED[1]],
    ),
    ("they do not wait for their copies", [("user.wait_event(arrived)", "pass")]),
    (
        "the loop gets 7",
        [("error is None or staged:", "error is None:"), ("if staged:", "if error is None:")],
    ),
    ("in another order", [("popleft", "pop")]),
    (
        "expects a pair of tensors",
        [*THREADED, before("room.acquire()", "if isinstance(batch, dict):", "    return", by=16)],
    ),
    (
        "Your code stopped",
        [before(STAGE, "if isinstance(batch, dict):", "    inputs, targets = batch")],
    ),
    (
        "does not come out as it went in",
        [before("return batch\n", "if isinstance(batch, dict):", "    return leaves(batch)")],
    ),
    (
        "before anybody asked you",
        [
            after(COPIES, "self.batches = iter(loader)", "self.first = next(self.batches)"),
            ("iter(self.loader)", "iter([self.first, *self.batches])"),
        ],
    ),
    (
        "The second epoch waits for ever",
        [
            *THREADED,
            after(COPIES, "self.first = None"),
            ("thread.start()", "self.first or thread.start()\n        self.first = thread"),
        ],
    ),
    (
        "[8, 0, 0]",
        [after(COPIES, "self.batches = iter(loader)"), ("iter(self.loader)", "self.batches")],
    ),
    ("memory grows from epoch to epoch", [after(STAGED, COPIES)]),
    ("nobody tells the loop", [*THREADED, ("ready.put((None, error))", "return")]),
    ("as if all were well", [("raise error", "return")]),
    ("the loop gets RuntimeError", [("raise error", "raise RuntimeError('it failed')")]),
    ("overtakes what was copied ahead", [("except Exception", "except StopIteration")]),
    ("does not get out of its break", [*THREADED, (TOLD_TO_STOP, "")]),
    (
        "a thread is still there",
        [*THREADED, (TOLD_TO_STOP + "            thread.join()", "            pass")],
    ),
    ("the loader is still open", [after(STAGED, "self.batches = batches")]),
    ("still on the GPU", [after(STAGED, "self.staged = staged")]),
    (
        "its batches are on GPU 0",
        [
            *THREADED,
            after(COPIES, "self.devices = devices"),
            after(
                "def fill(self, ready, stop, room):",
                "    if self.devices.current() is not self.gpu:",
                "        self.gpu = self.devices.current()",
                "        self.copies = self.gpu.Stream()",
                by=4,
            ),
        ],
    ),
    ("Wrong in 10 of 20 epochs", [("leaf.record_stream(user)", "pass")]),
    (
        "batches on the GPU at a time",
        [*THREADED, ("Semaphore(self.depth)", "Semaphore(self.depth + 3)")],
    ),
    (
        "4 batches on the GPU",
        [
            ("yield self", "batch = self"),
            after("batch = self.hand_over(*staged.popleft())", "yield batch", by=16),
        ],
    ),
    ("Behind 0% of the copying", [("self.gpu.Stream()", "self.gpu.current_stream()")]),
    ("Behind 0% of the copying", [("user.wait_event(arrived)", "user.wait_stream(self.copies)")]),
    ("Behind 0% of the copying", [("len(staged) <= self.depth", "not staged")]),
]


@pytest.mark.parametrize(("misconception", "changes"), WRONG)
def test_a_wrong_prefetcher_is_explained(
    misconception: str, changes: list[Change], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience = trial.Patience(hang=0.3, wake=0.2, settle=0.03, leave=0.2)
    monkeypatch.setattr(trial, "PATIENCE", patience)
    assert_refused(judge("09.2", folder, *changes), misconception)
