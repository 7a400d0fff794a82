"""Probes that many exercises share: each finds one kind of mistake and has one message for it.

They look where a plain comparison does not: at the process that called the answer, at what it keeps
in memory, and at the time that it takes.
"""

import gc
import os
import pickle
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

from course_utils.exercises.judging.chance import random_numbers_of, random_state
from course_utils.teaching.exercise import expect

Result = TypeVar("Result")

# where integers and floats of each width wrap around, or stop counting in ones
EDGES = (0, 1, 127, 128, 255, 256, 32_767, 32_768, 65_535, 65_536, 2**24, 2**24 + 1, 2**31, 2**32)
_PYTORCH = "the random generator of PyTorch"


@contextmanager
def process_unchanged(*given: Any, may_draw: bool = False) -> Iterator[None]:
    """Refuse an answer that changes its arguments, a random generator or another global setting.

    Args:
        given: The arguments of the answer. They are compared before and after.
        may_draw: Whether the answer may draw from PyTorch's generator.
    """
    arguments = [_frozen(argument) for argument in given]
    # an answer that seeds a generator must not find it in the state that it had seeded before
    with random_numbers_of(int.from_bytes(os.urandom(4), "little")):
        before = _settings()
        try:
            yield
            after = _settings()
        finally:
            torch.set_default_dtype(before["the default dtype"])  # type: ignore[arg-type]
            torch.set_grad_enabled(before["the gradient mode"])  # type: ignore[arg-type]
    for number, (argument, then) in enumerate(zip(given, arguments, strict=True), 1):
        expect(
            then is None or _frozen(argument) == then,
            f"Your answer changes its argument number {number}. The caller keeps this object, so "
            "the next epoch starts from the changed values.",
            "Work on a copy: x.clone(), x.copy() or list(x).",
        )
    if may_draw:
        del before[_PYTORCH]
    for setting, value in before.items():
        expect(
            after[setting] == value,
            f"Your answer changes {setting} of the whole process. Other code then behaves "
            "differently, for example dropout draws the same numbers again.",
            "Create your own object, such as torch.Generator().manual_seed(seed), and leave the "
            "global one alone.",
        )


def _settings() -> dict[str, object]:
    names = _PYTORCH, "the random generator of NumPy", "the random generator of Python"
    return {
        **dict(zip(names, random_state(), strict=True)),
        "the default dtype": torch.get_default_dtype(),
        "the number of threads": torch.get_num_threads(),
        "the gradient mode": torch.is_grad_enabled(),
    }


def _frozen(value: Any) -> bytes | None:
    """Return the bytes of a value, or None if it cannot be pickled."""
    try:
        return pickle.dumps(value)
    except Exception:  # whatever pickling a learner's object raises
        return None


def memory_of(call: Callable[[], Result]) -> tuple[Result, int, int]:
    """Return the result of `call`, the bytes that are held after it, and the most it held.

    Python objects and NumPy arrays count, even those in a module or a cache. Memory maps do not.
    """
    tracing = tracemalloc.is_tracing()
    gc.collect()
    tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        result = call()
        _, peak = tracemalloc.get_traced_memory()
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        if not tracing:
            tracemalloc.stop()
    return result, held - before, peak - before


def expect_as_fast(
    call: Callable[[], Any],
    reference: Callable[[], Any],
    *,
    times: float = 20,
    advice: str = "Remove waiting, printing, loops over single elements, and unnecessary copies.",
) -> None:
    """Refuse an answer that is `times` slower than a plain solution, measured in the same run."""
    took, plain = _best_of_three(call), _best_of_three(reference)
    for _ in range(5):  # a busy machine may have delayed all three calls
        if 1 <= took / (times * plain + 5e-3) < 10:
            took, plain = min(took, _best_of_three(call)), min(plain, _best_of_three(reference))
    expect(
        took < times * plain + 5e-3,
        f"Your answer needs {took / plain:.0f} times as long as a plain solution, "
        f"{1e3 * took:.0f} ms instead of {1e3 * plain:.1f} ms. Loading then limits the training.",
        advice,
    )


def _best_of_three(call: Callable[[], Any]) -> float:
    def once() -> float:
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    with one_thread():  # several threads wait for each other if the cores are busy
        return min(once() for _ in range(3))


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute with one thread, which is as fast on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
