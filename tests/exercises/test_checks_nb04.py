"""The checks of notebook 04: typical slips are named, other right ways pass."""

import multiprocessing
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from course_utils.measure.simulate import Pipeline, simulate
from course_utils.teaching.exercise import check
from notebooks.exercises.nb04.ex1_choose_workers import (
    enough,
    hidden_machines,
    needed_mb,
    smallest,
)
from notebooks.exercises.nb04.problem import MACHINES, Machine
from tests.exercises.solutions import (
    Change,
    Wrong,
    assert_refused,
    attempt,
    judge,
    wrong_answers,
)

IF_IT_FITS = "return enough if fed and fits else None"
CORES, STORAGE = "m.cpu_ms / m.cores <= m.step_ms and ", " and m.read_ms / m.streams <= m.step_ms"
EACH_MB = "(m.worker_mb + 2 * m.batch_mb)"
TEXT, PLACES = 'b"".join(encoded)', "np.cumsum([0, *map(len, encoded)])"
DECODED = "self.text[begin:end].decode()"
OBJECTS = "an object for each of the 5,000 strings"
WORKER_RNG = "from course_utils.loading.workers import worker_rng"
STATE = """    def __getstate__(self) -> dict:
        return {**self.__dict__, "_file": None, "_opened_by": None}"""
ONCE = ("self._opened_by != os.getpid()", "self._file is None")
DRAW = """        if self.seed != torch.initial_seed():
            self.seed = torch.initial_seed()
            self.rng = np.random.default_rng(self.seed)
        return int(self.rng.integers(1_000_000))"""
MADE_ONCE = ("self.seed != torch.initial_seed()", "self.seed is None")
IN_INIT = ("length, None, None", "length, None, np.random.default_rng(0)")
INFO = "torch.utils.data.get_worker_info()"
RANDOM = "random.randrange(1_000_000)"
SAME, OTHER = "Every epoch brings the same numbers", "other numbers come"


def _draw(expression: str) -> Change:
    """Return a change: draw each number by this."""
    return DRAW, f"        return int({expression})"


def _draw_by(rng: str) -> Change:
    return _draw(f"{rng}.integers(1_000_000)")


def _text(packed: str, read: str) -> tuple[Change, Change]:
    """Return the changes that keep the text otherwise."""
    return (TEXT, packed), (DECODED, read)


WRONG: Wrong = {
    "04.1": [
        ("You return 0 where no number", ("else None", "else 0")),
        ("One worker for each core", (IF_IT_FITS, "return m.cores")),
        ("You never return None", (IF_IT_FITS, "return enough")),
        ("You leave out the memory", (" and fits", "")),
        ("workers share the cores", (CORES, "")),
        ("workers share the storage", (STORAGE, "")),
        ("You forget what the workers share", ("fed and fits", "fits")),
        ("no more workers than cores", ("and fits", "and fits and enough <= m.cores")),
        ("You cut W down to the cores", (IF_IT_FITS, "return min(enough, m.cores)")),
        ("not the batches that lie ready", (EACH_MB, "m.worker_mb")),
        ("one batch for each worker", ("2 * m.batch_mb", "m.batch_mb")),
        ("You round down", ("return enough", "return (m.read_ms + m.cpu_ms) // m.step_ms")),
        (
            "the nearest number",
            ("return enough", "return round((m.read_ms + m.cpu_ms) / m.step_ms)"),
        ),
        ("You leave the reading out", ("return enough", "return math.ceil(m.cpu_ms / m.step_ms)")),
        (
            "the largest number that fits",
            ("return enough", "return m.free_mb // (m.worker_mb + 2 * m.batch_mb)"),
        ),
        ("You return 3 workers for it: that is more", ("return enough", "return enough + 1")),
        ("You return None for it, but there is a W", (IF_IT_FITS, "return None")),
        ("no number of workers", (IF_IT_FITS, "return 2.5")),
        ("no number of workers", (IF_IT_FITS, "return '8'")),
        ("AttributeError", ("m.cores", "m.threads")),
    ],
    "04.2": [
        (OBJECTS, *_text("strings", "self.text[index]")),
        (OBJECTS, *_text("encoded", "self.text[index].decode()")),
        (OBJECTS, *_text("np.array(strings, object)", "self.text[index]")),
        (OBJECTS, (PLACES, f"{PLACES}.tolist()")),
        ("take 4 bytes for each", *_text("np.array(strings)", "str(self.text[index])")),
        (
            "the room of the longest",
            *_text("np.array(encoded)", "bytes(self.text[index]).decode()"),
        ),
        (
            "an offset in characters is not one in bytes",
            ("(len, encoded)", "(len, strings)"),
            (".decode()", ".decode(errors='replace')"),
        ),
        ("expects a str", (DECODED, "self.text[begin:end]")),
        ("len() says 5,001", ("len(self.places) - 1", "len(self.places)")),
        (
            "where the list had 'run_00000/event_00000000.npz'",
            ("        begin, end", "        index = (index + 1) % len(self)\n        begin, end"),
        ),
    ],
    "04.3": [
        ("It cannot be sent", ("None, None", "open(path, 'rb'), os.getpid()"), (STATE, "")),
        ("Once the notebook has looked at a row", ONCE, (STATE, "")),
        ("Once the notebook has looked at a row", (STATE, "")),
        ("wanted are the 8 numbers of that row", ("64 * index", "64 * ((index + 1) % len(self))")),
        ("wanted are the 8 numbers of that row", ("read(64)", "read(32)")),
    ],
    "04.4": [
        ("Each has a copy of one generator", IN_INIT, _draw_by("self.rng")),
        ("both workers got a copy of it", MADE_ONCE),
        ("made anew, with the same", _draw_by("np.random.default_rng(torch.initial_seed())")),
        (
            f"{SAME} with 2 workers",
            ("(self.seed)", f"(getattr({INFO}, 'id', 0))"),
        ),
        (f"{SAME} with 2 workers", _draw_by("np.random.default_rng(index)")),
        (f"{SAME} without", _draw_by("np.random.default_rng([torch.initial_seed(), index])")),
        (f"{OTHER} with 2", ("default_rng(self.seed)", "default_rng()")),
        (f"{OTHER} with 2", _draw_by("np.random.default_rng()")),
        (f"{OTHER} without workers", _draw("np.random.randint(1_000_000)")),
        (f"{OTHER} without workers", ("import torch\n", "import random, torch\n"), _draw(RANDOM)),
    ],
}


@pytest.mark.parametrize(("key", "misconception", "changes"), wrong_answers(WRONG))
@pytest.mark.filterwarnings("ignore:.*unclosed file:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_wrong_answer_is_explained(
    key: str, misconception: str, changes: list[Change], folder: Path
) -> None:
    assert_refused(judge(key, folder, *changes), misconception)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("misconception", "changes"),
    [
        pytest.param(
            "it read through the handle that the notebook had open",
            [ONCE],
            marks=pytest.mark.skipif(sys.platform == "win32", reason="nothing is forked there"),
        ),
        ("times for 200 rows", [("self._opened_by != os.getpid()", "True")]),
    ],
)
@pytest.mark.filterwarnings("ignore:.*unclosed file:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_handle_that_fails_in_workers_is_explained(
    misconception: str, changes: list[Change], folder: Path
) -> None:
    assert_refused(judge("04.3", folder, *changes), misconception)


@pytest.mark.slow
def test_a_descriptor_read_by_position_is_as_good(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = multiprocessing.get_all_start_methods()[:1]  # one of them, for the sake of time
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: first)
    descriptor = [
        ('open(self.path, "rb")', "os.open(self.path, os.O_RDONLY | getattr(os, 'O_BINARY', 0))"),
        ("self._file.seek(64 * index)", "os.lseek(self._file, 64 * index, os.SEEK_SET)"),
        ("self._file.read(64)", "os.read(self._file, 64)"),
    ]
    verdict = judge("04.3", folder, *descriptor)
    assert verdict.status == "right", verdict


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "changes"),
    [
        (
            "04.2",
            [
                ("import numpy as np", "import numpy as np\nimport pyarrow as pa"),
                (TEXT, "pa.array(strings)"),
                (DECODED, "self.text[int(index)].as_py()"),
            ],
        ),
        ("04.4", [_draw("torch.randint(1_000_000, ())")]),
        (
            "04.4",
            [
                (
                    "import torch\n",
                    "import torch\nfrom course_utils.loading.workers import worker_rng\n",
                ),
                _draw_by("worker_rng()"),
            ],
        ),
    ],
    ids=["packed by Arrow", "drawn by torch", "drawn by worker_rng"],
)
def test_another_right_way_passes(key: str, changes: list[Change], folder: Path) -> None:
    verdict = judge(key, folder, *changes)
    assert verdict.status == "right", verdict


@pytest.mark.parametrize(("key", "argument"), [("04.2", ["one"]), ("04.3", "no file"), ("04.4", 8)])
def test_an_object_in_place_of_its_class_is_refused(key: str, argument: Any, folder: Path) -> None:
    (kind,) = attempt(key, folder)
    assert_refused(check(key, kind(argument)), "not a class. The check")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shares pages as it counts")
def test_the_memory_of_a_forked_worker_is_part_of_the_verdict(folder: Path) -> None:
    assert "made a forked worker" in judge("04.2", folder).message


def test_the_check_leaves_the_learners_seed_alone(folder: Path) -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    judge("04.4", folder, MADE_ONCE)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_the_rule_agrees_with_the_model(machine: Machine) -> None:
    def idle(workers: int) -> float:
        loop = Pipeline(
            read_ms=machine.read_ms,
            decode_ms=machine.cpu_ms,
            step_ms=machine.step_ms,
            num_workers=workers,
            cores=machine.cores,
            storage_streams=machine.streams,
            steps=200,
        )
        return 1 - simulate(loop).summary().au

    assert idle(enough(machine)) < 0.01
    assert idle(enough(machine) - 1) > 0.1


def test_the_three_machines_differ_in_what_decides() -> None:
    assert [smallest(machine) for machine in MACHINES.values()] == [2, 8, None]
    container = MACHINES["container"]
    assert smallest(replace(container, free_mb=4_000)) == enough(container)


def test_every_limit_decides_on_some_hidden_machine() -> None:
    limits: Counter[str] = Counter()
    for m in hidden_machines(60):
        limits["cores"] += m.cpu_ms / m.cores > m.step_ms
        limits["storage"] += m.read_ms / m.streams > m.step_ms
        limits["memory"] += needed_mb(m, enough(m)) > m.free_mb
        limits["nothing"] += smallest(m) is not None
    assert len(limits) == 4
    assert min(limits.values()) >= 8, limits
