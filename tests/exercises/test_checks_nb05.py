"""The checks of notebook 05: each typical slip in the solution is named."""

import multiprocessing
import threading
from pathlib import Path
from typing import Any

import pytest

from course_utils.loading.prefetch import ThreadPrefetcher
from course_utils.teaching.exercise import check
from notebooks.stories.prefetchers import trial
from tests.exercises.solutions import Change, after, assert_refused, attempt, before, judge

SHARE = "self.shards[place :: self.world_size * workers]"


def _share(expression: str) -> list[Change]:
    return [(SHARE, expression)]


@pytest.mark.full
def test_the_shards_are_divided_however_workers_start(folder: Path, start_method: str) -> None:
    multiprocessing.set_start_method(start_method, force=True)
    verdict = judge("05.1", folder)
    assert verdict.status == "right", verdict


@pytest.mark.slow
def test_ranks_first_and_then_workers_is_right_too(folder: Path) -> None:
    nested = _share("self.shards[self.rank :: self.world_size][id_::workers]")
    assert judge("05.1", folder, *nested).status == "right"


INIT = "self.shards, self.rank, self.world_size = shards, rank, world_size"
EQUAL = "self.shards[place * size : (place + 1) * size]"
LOOP = f"for shard in {SHARE}:"
PLACES = "self.world_size * workers"
WRONG_SHARES = [
    ("every rank serves the same events", _share("self.shards")),
    ("every rank serves the same events", _share("self.shards[id_::workers]")),
    ("the workers of a rank serve", _share("self.shards[self.rank :: self.world_size]")),
    (
        "asked for in __init__",
        [("get_worker_info()", "self.worker"), after(INIT, "self.worker = get_worker_info()")],
    ),
    ("get_worker_info() returns None", [("if worker else (0, 1)", "")]),
    (
        "lose the tail",
        [before(LOOP, f"size = len(self.shards) // ({PLACES})"), (SHARE, EQUAL)],
    ),
    (
        "The others wait for the slowest",
        [before(LOOP, f"size = -(-len(self.shards) // ({PLACES}))"), (SHARE, EQUAL)],
    ),
    ("The shares overlap", _share("self.shards[place::workers]")),
    ("The shares overlap", [("self.rank * workers + id_", "self.rank + id_")]),
    ("read by nobody", _share(f"self.shards[place + 1 :: {PLACES}]")),
    (
        "throw away",
        [
            (LOOP, "for shard in [events[place :: self.world_size * workers]]:"),
            after(
                "place = self.rank * workers + id_",
                "events = [event for shard in self.shards for event in shard]",
            ),
        ],
    ),
    (
        "The second epoch",
        [before(LOOP, "self.shards, shards = [], self.shards"), (SHARE, SHARE[5:])],
    ),
    ("no event of a shard", [("yield from shard", "yield shard")]),
    ("no IterableDataset", [("(IterableDataset)", "")]),
]


@pytest.mark.parametrize(("misconception", "changes"), WRONG_SHARES)
def test_a_wrong_share_is_explained(
    misconception: str, changes: list[Change], folder: Path
) -> None:
    assert_refused(judge("05.1", folder, *changes), misconception)


def test_a_dataset_in_place_of_its_class_is_refused(folder: Path) -> None:
    (stream_class,) = attempt("05.1", folder)
    assert_refused(check("05.1", stream_class([])), "not a class")


def test_a_stream_of_the_notebook_is_refused_before_a_worker_dies_of_it(folder: Path) -> None:
    code: dict[str, Any] = {"__name__": "__main__", "Stream": attempt("05.1", folder)[0]}
    exec("class Mine(Stream):\n    pass\n", code)
    assert_refused(check("05.1", code["Mine"]), "lives in the notebook")


@pytest.mark.parametrize(
    ("numbers", "misconception"),
    [
        ((1, 20, 980), "A buffer moves an event by its own length only"),
        ((8, 20, 840), "A buffer moves an event by its own length only"),
        ((1, 1, 999), "20,000 requests in an epoch"),
        ((45, 10, 100), "2,000 requests in an epoch"),
        ((40, 20, 1_000), "What is read and not yet used is memory too"),
        ((4, 200, 200), "A chunk of 200 spends memory"),
        ((4, 20, 100), "820 events of memory are unused"),
        ((0, 20, 100), "at_once = 0"),
        ((3.5, 20, 100), "at_once = 3.5"),
        ((200, 20, 1), "no more can be open"),
    ],
)
def test_wrong_numbers_are_explained(numbers: tuple[int, int, int], misconception: str) -> None:
    assert_refused(check("05.2", *numbers), misconception)


def test_a_number_left_open_is_not_attempted() -> None:
    assert check("05.2", 35, 20, ...).status == "todo"


def test_the_prefetcher_of_the_course_is_right_and_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    verdict = check("05.3", ThreadPrefetcher)
    assert verdict.status == "right", verdict
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
        assert not thread.is_alive()


ITEMS, START = "for item in self.source:", "threading.Thread(target=fill, daemon=True).start()"
ITER, SIZE = "def __iter__(self):", "queue.Queue(self.depth)"
ONE_BY_ONE = (
    "    items, found = iter(self.source), []",
    "    while True:",
    "        one = threading.Thread(target=lambda: found.append(next(items, items)))",
    "        one.start()",
    "        one.join()",
    "        if found[-1] is items:",
    "            return",
    "        yield found[-1]",
)
WRONG_PREFETCHERS = [
    ("The loop never ends", [("yield pair[0]", "while True:\n                    yield pair[0]")]),
    ("The loop never ends", [("                send(end)\n", "")]),
    ("they do not mean the end", [("is not end:", "not in (end, None):")]),
    ("in another order", [(ITEMS, "for item in reversed(list(self.source)):")]),
    ("The two take turns", [after(ITER, "    yield from self.source", "    return", by=4)]),
    ("The two take turns", [after(ITER, *ONE_BY_ONE, by=4)]),
    ("the whole source is read before", [(ITEMS, "for item in list(self.source):")]),
    ("asked to load 3 ahead", [(SIZE, "queue.Queue(1)")]),
    ("An unlimited queue", [(SIZE, "queue.Queue()")]),
    ("are the most", [(SIZE, "queue.Queue(2 * self.depth + 2)")]),
    (
        "The second epoch waits for ever",  # the thread of the lecture, started once
        [
            ("\n    def __iter__(self):\n", ""),
            (
                START,
                START + "\n        self.of = ready, stop, end\n\n    def __iter__(self):\n"
                "        ready, stop, end = self.of",
            ),
        ],
    ),
    (
        "Three epochs serve [8, 0, 0] items",
        [before(ITEMS, "self.source = iter(self.source)", by=16)],
    ),
    ("An exception ends the thread", [("except BaseException", "except OSError")]),
    ("as if all were well", [("send(end, error)", "send(end)")]),
    ("the loop gets RuntimeError", [("raise pair[1]", "raise RuntimeError('it failed')")]),
    ("waiting for room in a queue that nobody empties", [("timeout=0.1", "timeout=None")]),
    ("the thread is still there", [("while not stop.is_set():", "while True:")]),
    (
        "does not get out of its break",
        [
            (START, f"filler = {START[:-8]}\n        filler.start()"),
            ("stop.set()", "filler.join()"),
        ],
    ),
    (
        "the source is still open",
        [
            before(ITEMS, "self.items = iter(self.source)", by=16),
            (ITEMS, "for item in self.items:"),
        ],
    ),
]


@pytest.mark.parametrize(("misconception", "changes"), WRONG_PREFETCHERS)
def test_a_wrong_prefetcher_is_explained(
    misconception: str, changes: list[Change], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience = trial.Patience(hang=0.3, wake=0.2, settle=0.03, leave=0.25)
    monkeypatch.setattr(trial, "PATIENCE", patience)
    assert_refused(judge("05.3", folder, *changes), misconception)
