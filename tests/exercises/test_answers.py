"""Exercises whose answers are numbers, names and letters: what is right, and each known slip."""

from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from course_utils.exercises.nb02.ex2_predict_idle import SIX_LOOPS, true_idle
from course_utils.exercises.nb03.ex3_list_the_flaws import FLAWS, SOUND
from course_utils.exercises.nb03.ex4_choose_tools import QUESTIONS
from course_utils.exercises.nb06 import ex1_choose_formats as formats
from course_utils.exercises.nb06.ex2_choose_chunks import mean_cost
from course_utils.exercises.nb09.ex1_label_the_defects import LABELS
from course_utils.exercises.nb09.problem import CAUSES, SYMPTOMS
from course_utils.hardware.storage import counting_storage
from course_utils.loading.events import open_events
from course_utils.stories.chunk_trial import try_chunks
from course_utils.teaching.exercise import Verdict, check
from tests.exercises.solutions import assert_refused

# right answers, part by part
RIGHT: dict[str, dict[Any, Any]] = {
    "02.1": {"events": 10_000_000, "days": 1007.2, "slowdown": 10.07},
    "02.4": {"month": 1512.0, "day": 1763.1, "hour": 5.44},
    "05.2": {"at_once": 40, "chunk": 20, "buffer": 200},
    "06.1": {"training": "npy", "histogram": "parquet", "display": "sqlite", "one_pass": "tar"},
    "06.2": {"chunks": (2, 20, 16)},
    "09.1": LABELS,
}
ALSO_RIGHT: list[tuple[str, dict[str, Any]]] = [
    *((key, {}) for key in RIGHT),
    ("02.1", {"days": 1013 / 9 * 78_125 / 8_640, "slowdown": 10}),
    ("02.1", {"events": np.array(10_000_000), "days": Fraction(10_072, 10)}),
    ("02.4", {"month": 3 * 730 * 0.7}),
    ("06.1", {"training": "hdf5", "histogram": "root", "one_pass": "parquet"}),
    ("06.1", {"training": "tar", "one_pass": "npy"}),
    ("06.2", {"chunks": (3, 12, 16)}),
    ("06.2", {"chunks": [4, 12, 16]}),
    ("06.2", {"chunks": np.array([4, 12, 24])}),
]
OPEN: list[tuple[str, dict[str, Any]]] = [
    ("02.1", {"days": ..., "slowdown": ...}),
    ("05.2", {"buffer": ...}),
    ("06.1", {"display": ...}),
]
WRONG: dict[str, list[tuple[dict[str, Any], str]]] = {
    "02.1": [
        ({"events": 1_000_000}, "The plan was a million events"),
        ({"events": 5}, "2,000,000 times too small"),
        ({"events": "10 million"}, "is '10 million', not a number"),
        ({"days": 100.72}, "The bar shows one epoch"),
        ({"slowdown": 100.72}, "days with days"),
        ({"slowdown": 1.007}, "because it had ten epochs"),
        ({"slowdown": 0.0993}, "Invert the ratio"),
        ({"slowdown": None}, "slowdown_per_event is None, not a number"),
    ],
    "02.4": [
        ({"month": 18_000}, "This is a year, so it is 12 times too much"),
        ({"month": 3 * 24 * 31 * 0.7}, "does not follow from the figures"),
        ({"day": 1_974.7}, "compared with 100 %"),
        ({"day": 1_410.5}, "subtracted percentages"),
        ({"hour": 1.63}, "any hour"),
        ({"hour": 2.04}, "after the fix"),
    ],
    "05.2": [
        ({"at_once": 1, "buffer": 980}, "A buffer moves most events by less than its own length"),
        ({"at_once": 1, "chunk": 1, "buffer": 999}, "An epoch takes 20,000 requests"),
        ({"buffer": 1_000}, "1,800 events are in memory"),
        ({"at_once": 4, "chunk": 200}, "so with at_once = 4 a batch contains few"),
        ({"at_once": 0, "buffer": 100}, "at_once = 0"),
        ({"at_once": 3.5, "buffer": 100}, "at_once = 3.5"),
        ({"chunk": float("nan")}, "chunk = nan"),
    ],
    "06.1": [
        ({"training": "npz"}, "Each event costs an open"),
        ({"training": "parquet"}, "Its unit has hundreds of events"),
        ({"training": "sqlite"}, "one small page after another"),
        ({"histogram": "npy"}, "all four columns are read"),
        ({"display": "tar"}, "It has no index of ids"),
        ({"one_pass": "zip"}, "'zip' is not one of the formats"),
        ({"training": ["npy"]}, "not one of the formats"),
    ],
    "06.2": [
        ({"chunks": True}, "h5py chooses"),
        ({"chunks": (64, 192, 192)}, "HDF5 reads complete chunks"),
        ({"chunks": (1, 192, 192)}, "Chunks stick out of a cube"),
        ({"chunks": (16, 8, 8)}, "Yours have 16 planes"),
        ({"chunks": (1, 16, 16)}, "Small chunks waste no bytes, but each is a request"),
        ({"chunks": (3, 34, 14)}, "2.20 bytes read per byte needed"),
        ({"chunks": None}, "None is not the shape"),
        ({"chunks": (1, 192)}, "is not the shape of a chunk"),
        ({"chunks": (3, 0, 16)}, "is not the shape of a chunk"),
        ({"chunks": (64, 192, 256)}, "is not the shape of a chunk"),
    ],
    "09.1": [
        ({"f": "silent thread"}, "why did it die?"),
        ({"h": "no record_stream"}, "even in its first batch"),
        ({"d": "pageable memory"}, "in the queue of the steps"),
        ({"a": "no such cause"}, "not among the causes"),
    ],
}


def check_answers(key: str, answers: dict[str, Any]) -> Verdict:
    return check(key, *{**RIGHT[key], **answers}.values())


def test_right_answers_pass_and_half_written_ones_are_not_attempted() -> None:
    for status, rows in (("right", ALSO_RIGHT), ("todo", OPEN)):
        for key, answers in rows:
            verdict = check_answers(key, answers)
            assert verdict.status == status, (key, answers, verdict)


@pytest.mark.parametrize("key", WRONG)
def test_a_wrong_answer_is_explained(key: str) -> None:
    for answers, misconception in WRONG[key]:
        assert_refused(check_answers(key, answers), misconception)


def test_the_six_loops_cover_what_can_limit_a_loop() -> None:
    shares = [round(true_idle(loop), 2) for loop in SIX_LOOPS]
    assert shares == [0.62, 0.38, 0.0, 0.58, 0.58, 0.0]


def test_flaws_may_be_a_text_or_a_dict_and_each_letter_is_explained() -> None:
    as_dict = {**dict.fromkeys("abcd", 1), "e": 0}
    for answer in ("d, b, a, c", "a, b, c and d", {"a, b, c, d"}, "ABCD", as_dict):
        assert check("03.3", answer).status == "right", answer
    for letter, reason in {**FLAWS, **SOUND}.items():
        assert_refused(check("03.3", set(FLAWS) ^ {letter}), reason)
    for answer in ({"a", "z"}, ["a"], 4):
        assert check("03.3", answer).status == "wrong", answer
    assert check("03.3", set()).status == check("03.3", None).status == "todo"


def test_a_wrong_tool_is_explained() -> None:
    tools = {question: row["tool"] for question, row in QUESTIONS.items()}
    for question, said, misconception in [
        ("line", "torch.profiler", "does not see the workers"),
        ("cores", "pressure", "only the whole machine"),
        ("bytes", "pressure", "the bytes of each process"),
        ("stall", "iotop", "not how long a program waited"),
        ("file", "iotop", "but not by file"),
        ("kernel", "top", "Only a profiler"),
        ("kernel", "htop2", "not among the tools"),
    ]:
        assert_refused(check("03.4", {**tools, question: said}), misconception)


def test_tools_may_be_spelled_otherwise_and_all_are_asked_for() -> None:
    tools = dict(zip(QUESTIONS, ["torch profiler", "PySpy", "htop", "iotop"], strict=False))
    assert check("03.4", tools).message == "No tool is named yet for stall, file."
    tools |= {"stall": "/proc/pressure/io", "FILE": "dftracer "}
    assert check("03.4", tools).status == "right"
    assert check("03.4", dict.fromkeys(QUESTIONS)).status == "todo"
    for answers in [*tools.values()], {tool: question for question, tool in tools.items()}:
        assert_refused(check("03.4", answers), "Your answer must be a dict. Its keys are kernel")


def test_every_other_cause_of_a_symptom_meets_an_objection() -> None:
    for letter, cause in product(SYMPTOMS, CAUSES):
        if cause != LABELS[letter]:
            assert_refused(check_answers("09.1", {letter: cause}), f"({letter})")


def test_causes_that_are_missing_are_asked_for() -> None:
    assert_refused(check("09.1", "thread in __init__"), "you give 1 causes")


def test_mean_cost_of_chunks_agrees_with_measured_reads() -> None:
    for chunks in ((4, 16, 16), (3, 34, 14), (8, 24, 48)):
        measured = try_chunks(chunks)
        assert mean_cost(chunks, (4, 192, 192)) == pytest.approx(measured.slab, rel=0.05), chunks
        assert mean_cost(chunks, (48, 48, 48)) == pytest.approx(measured.cube, rel=0.15), chunks


@pytest.mark.parametrize("name", formats.FORMATS)
def test_every_format_gives_all_charges_for_the_histogram(name: str) -> None:
    folder = formats._folder()
    dataset = open_events(folder, name, fs=counting_storage(folder))
    pulses = np.load(folder / "npy/pulses.npy")
    np.testing.assert_array_equal(formats.all_charges(name, dataset), pulses[:, 1])
