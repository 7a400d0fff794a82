"""The shared probes: each refuses its kind of mistake, and lets a plain right answer pass."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from course_utils.exercises.judging import Number, judge_numbers
from course_utils.exercises.judging.chance import expect_mixed, expect_no_seed, shuffled
from course_utils.exercises.judging.compare import Raised, Slip, compare, difference
from course_utils.exercises.judging.probes import expect_as_fast, process_unchanged
from course_utils.teaching.exercise import Refused

DISK = list(range(400))


def refused(call: Callable[[], Any]) -> str:
    """Return the message of a refusal and its next step, or "" if there is none."""
    try:
        call()
    except Refused as error:
        return f"{error.verdict.message} {error.verdict.next_step}"
    return ""


def test_a_changed_process_is_refused_and_restored() -> None:
    changes: list[tuple[Callable[[list[int]], object], str]] = [
        (lambda _: torch.manual_seed(1), "the random generator of PyTorch"),
        (lambda _: np.random.seed(1), "the random generator of NumPy"),
        (lambda _: random.random(), "the random generator of Python"),
        (lambda _: torch.set_grad_enabled(False), "the gradient mode"),
        (lambda given: given.append(1), "argument number 1"),
        (lambda given: [*given, torch.Generator().manual_seed(1)], ""),
    ]
    for change, message in changes:

        def call(change: Callable[[list[int]], object] = change) -> None:
            given: list[int] = []
            with process_unchanged(given):
                change(given)

        said = refused(call)
        assert message in said, message
        assert bool(said) == bool(message), said
        assert torch.is_grad_enabled()
    assert refused(lambda: expect_no_seed(lambda: torch.manual_seed(0)))
    assert not refused(lambda: expect_no_seed(lambda: torch.rand(1)))


def test_orders_that_follow_the_disk_or_each_other_are_refused() -> None:
    first, second = shuffled(DISK, 0), shuffled(DISK, 1)
    blocks = [index for start in range(0, 400, 50) for index in shuffled(DISK[start:][:50], start)]
    assert not refused(lambda: expect_mixed([first, second], DISK))
    for epochs in ([DISK, second], [first, first], [first, first[::-1]], [blocks], [first[:-1]]):
        assert refused(lambda epochs=epochs: expect_mixed(epochs, DISK)), epochs
    assert refused(lambda: expect_mixed([first, first[7:] + first[:7]], DISK))


def test_slow_answers_are_refused() -> None:
    def add(numbers: int) -> Callable[[], int]:
        return lambda: sum(range(numbers))

    assert "times as long" in refused(lambda: expect_as_fast(add(2_000_000), add(1_000)))
    assert not refused(lambda: expect_as_fast(add(1_000), add(1_000)))


def test_a_comparison_names_a_slip_or_shows_the_smallest_case_and_how_to_run_it() -> None:
    def judge(answer: Callable[[int], Any], **how: Any) -> str:
        slip = Slip(lambda case, got, _: got == case, "You gave {case} back.", "Double it.")
        return refused(lambda: compare(answer, lambda n: [n, 2 * n], [1, 2, 300], slip, **how))

    assert judge(lambda n: [n, 2 * n]) == ""
    assert judge(lambda n: n) == "You gave 1 back. Double it."
    said = judge(lambda n: [n, 2 * n % 256], call="double({})".format)
    assert said.startswith("For double(300), the result is [300, 88], but must be [300, 600].")
    said = judge(lambda n: [], show="the case {}".format, call="double({})".format)
    assert "For the case 1" in said
    assert "line by line: `double(1)`." in said
    shared = [0, 0]

    def overwrite(n: int) -> list[int]:
        shared[:] = n, 2 * n
        return shared

    assert "the next call changed it" in judge(overwrite)


def test_a_difference_is_told_with_its_place() -> None:
    zeros, long = torch.zeros(2), "x" * 300
    for got, wanted, said in [
        (torch.zeros(2), zeros, ""),
        (torch.tensor(float("nan")), torch.tensor(float("nan")), ""),
        (torch.zeros(2).double(), zeros, "has dtype torch.float64"),
        (torch.zeros(1), zeros, "has shape (1,)"),
        (np.zeros(2), zeros, "is a ndarray"),
        (torch.tensor([0.0, 5.0]), zeros, "[1] is 5.0, but must be 0.0"),
        (None, zeros, "is a NoneType"),
        ({"a b": [1, 3]}, {"a b": [2, 2]}, '"a b" is [1, 3], but must be [2, 2]'),
        ([zeros], {"a": 1}, "is a list, but must be a dict"),
        (f"{long}y{long}", f"{long}z{long}", "from character 300 of 601"),
        ("ValueError", Raised("ValueError"), "returns 'ValueError', but must raise ValueError"),
        (1, 2, "the result is 1, but must be 2"),
        (True, "True", "True"),
    ]:
        assert said in difference(got, wanted), said
        assert bool(said) == bool(difference(got, wanted)), said


def test_a_number_that_is_a_whole_factor_off_is_told_by_which() -> None:
    number = [Number("cost", 5.44, "Divide.", {1.63: "any hour"})]
    for answer, said in [(391.8, "72 times too large"), (0.0907, "60 times"), (8.0, "not follow")]:
        assert said in judge_numbers([answer], number, "").message
    assert judge_numbers([5.44], number, "Right.").status == "right"
