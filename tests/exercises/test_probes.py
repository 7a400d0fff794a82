"""The shared probes: each refuses its kind of mistake, and lets a plain right answer pass."""

import os
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from course_utils.exercises.judging.compare import Slip, compare, difference
from course_utils.exercises.judging.probes import (
    expect_as_fast,
    expect_given_rank,
    expect_mixed,
    expect_new_results,
    process_unchanged,
    shuffled,
)
from course_utils.teaching.exercise import Refused

DISK = list(range(400))


def refused(call: Callable[[], Any]) -> str:
    """Return the message of a refusal, or "" if there is none."""
    try:
        call()
    except Refused as error:
        return error.verdict.message if error.verdict.next_step else ""
    return ""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda _: torch.manual_seed(1), "the random generator of PyTorch"),
        (lambda _: np.random.seed(1), "the random generator of NumPy"),
        (lambda _: random.random(), "the random generator of Python"),
        (lambda _: os.environ.update(COURSE_PROBE="1"), "variable COURSE_PROBE"),
        (lambda _: os.chdir(".."), "the working directory"),
        (lambda _: torch.set_grad_enabled(False), "the gradient mode"),
        (lambda given: given.append(1), "argument number 1"),
        (lambda given: [*given, torch.Generator().manual_seed(1)], ""),
    ],
)
def test_a_changed_process_is_refused_and_restored(
    change: Callable[[Any], Any], message: str
) -> None:
    def call() -> None:
        given: list[int] = []
        with process_unchanged(given):
            change(given)

    folder = os.getcwd()
    try:
        said = refused(call)
    finally:
        torch.set_grad_enabled(True)
    assert message in said
    assert bool(said) == bool(message)
    assert os.getcwd() == folder
    assert "COURSE_PROBE" not in os.environ


@pytest.mark.parametrize(
    ("epochs", "mixed"),
    [
        ([shuffled(DISK, 0), shuffled(DISK, 1)], True),
        ([DISK, shuffled(DISK, 1)], False),
        ([shuffled(DISK, 0), shuffled(DISK, 0)], False),
        ([shuffled(DISK, 0), shuffled(DISK, 0)[::-1]], False),
        ([shuffled(DISK, 0), shuffled(DISK, 0)[7:] + shuffled(DISK, 0)[:7]], False),
        ([[i for n in range(0, 400, 50) for i in shuffled(DISK[n : n + 50], n)]], False),
    ],
)
def test_orders_that_follow_the_disk_or_each_other_are_refused(
    epochs: list[list[int]], mixed: bool
) -> None:
    assert bool(refused(lambda: expect_mixed(epochs, DISK))) != mixed


def test_kept_results_slow_answers_and_hidden_errors_are_refused() -> None:
    kept: list[torch.Tensor] = []

    def keep() -> torch.Tensor:
        kept.append(torch.zeros(3))
        return kept[-1]

    assert "still in memory" in refused(lambda: expect_new_results(keep))
    assert not refused(lambda: expect_new_results(lambda: {"x": [torch.zeros(3)]}))
    assert "times as long" in refused(
        lambda: expect_as_fast(lambda: sum(range(2_000_000)), lambda: sum(range(1_000)))
    )
    assert not refused(lambda: expect_as_fast(lambda: sum(range(1_000)), lambda: sum(range(1_000))))


def test_a_rank_from_the_environment_is_refused() -> None:
    assert "Slurm" in refused(
        lambda: expect_given_rank(lambda: os.environ.get("SLURM_PROCID", "0"))
    )
    assert "torchrun" in refused(lambda: expect_given_rank(lambda: os.environ.get("RANK", "0")))
    assert not refused(lambda: expect_given_rank(lambda: 3))


def test_a_comparison_names_a_slip_or_shows_the_smallest_case() -> None:
    def judge(answer: Callable[[int], Any]) -> str:
        slip = Slip(lambda case, got, _: got == case, "You gave {case} back.", "Double it.")
        return refused(lambda: compare(answer, lambda n: [n, 2 * n], [1, 2, 300], slip))

    assert judge(lambda n: [n, 2 * n]) == ""
    assert judge(lambda n: n) == "You gave 1 back."
    assert judge(lambda n: [n, 2 * n % 256]) == "For 300, result[1] is 88, but must be 600."
    shared = [0, 0]

    def overwrite(n: int) -> list[int]:
        shared[:] = n, 2 * n
        return shared

    assert "the next call changed it" in judge(overwrite)


@pytest.mark.parametrize(
    ("got", "said"),
    [
        (torch.zeros(2), ""),
        (torch.zeros(2).double(), "has dtype torch.float64"),
        (torch.zeros(1), "has shape (1,)"),
        (np.zeros(2), "is a ndarray"),
        (torch.tensor([0.0, 5.0]), "[1] is 5.0, but must be 0.0"),
        (None, "is a NoneType"),
    ],
)
def test_a_difference_is_told_with_its_place(got: Any, said: str) -> None:
    assert said in difference(got, torch.zeros(2))
    assert bool(said) == bool(difference(got, torch.zeros(2)))
