"""Exercise 06.4: numbers as uint16, all of them or none."""

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from course_utils.exercises.judging.compare import Raised, Slip, compare
from course_utils.exercises.judging.probes import EDGES, process_unchanged
from course_utils.teaching.exercise import Verdict, exercise, expect, right

Shrink = Callable[[NDArray[Any]], Any]

FITS = (
    np.array([0, 17, 5159, 4711]),
    np.array([0, 65_535]),
    np.array([0, 5159, 3], np.float32),
    np.arange(12).reshape(3, 4),
    np.arange(20)[::2],
    np.array([], np.int64),
    np.array([65_535, 1], np.uint64),
    np.array([7, 65_535], np.uint16),
    np.array([-0.0, 2.0]),  # -0.0 is 0
)
LOST: tuple[NDArray[Any], ...] = (
    *(np.array([1, edge]) for edge in EDGES if edge > 65_535),
    *map(np.array, ([2**40, 3], [70_000.0, 1.0], [3, -1], [-2.0, 3.0])),
    np.array([-1, 4], np.int16),
    np.array([-1, 65_536]),  # the sum does not change
    np.where(np.arange(100_000) == 70_003, -1, 8),  # a check of a random sample misses the -1
    *map(np.array, ([0.5, 1], [65_534.75], [-0.25], [0, 0.5, 1])),
    *map(np.array, ([60_000.3], [3.000000001, 1])),  # close enough for allclose
    *map(np.array, ([1, np.nan], [np.nan], [np.inf, 2], [-np.inf])),
)
CASES = [*FITS, *LOST, *(values[None] for values in LOST if values.size > 1)]
REFUSED = Raised("ValueError")
SLIPS = (
    Slip(
        lambda _, got, wanted: isinstance(got, Raised) and not isinstance(wanted, Raised),
        "{case} is refused with {got.kind}, although all of its numbers fit into uint16.",
        "Look at the values only. 0 and 65,535 fit, whole numbers stored as floats fit, and so "
        "does an empty array.",
    ),
    Slip(
        lambda _, got, wanted: isinstance(wanted, Raised) and isinstance(got, np.ndarray),
        "{case} became {got} without an error. uint16 holds whole numbers from 0 to 65,535. NumPy "
        "wraps larger and negative numbers, cuts off fractions, and turns NaN into an arbitrary "
        "number.",
        "Convert, compare the result with the input exactly, and raise ValueError if they differ.",
    ),
)


@exercise("06.4", title="Shrink without loss", seconds=30)
def shrink_without_loss(to_uint16: Shrink) -> Verdict:
    """Check a function that returns the same numbers as uint16, or raises ValueError."""
    # a message shows all digits, and the conversion of NaN warns on some machines only
    with np.printoptions(floatmode="unique"), np.errstate(invalid="ignore"):
        compare(partial(_shrunk, to_uint16), _plain, deepcopy(CASES), *SLIPS)
    return right("Numbers that fit come back in a quarter of the bytes. All others are refused.")


def _shrunk(to_uint16: Shrink, values: NDArray[Any]) -> Any:
    with process_unchanged(values):
        try:
            found = to_uint16(values)
        except (ValueError, AssertionError, OverflowError, TypeError) as error:
            kind = ValueError if isinstance(error, ValueError) else type(error)
            return Raised(kind.__name__, str(error))
    expect(
        not (isinstance(found, np.ndarray) and values.size and np.shares_memory(found, values)),
        "The result shares its memory with the input. If the caller changes one of them, the "
        "other changes too.",
        "Return a copy, as values.astype(np.uint16) does.",
    )
    return found


def _plain(values: NDArray[Any]) -> Any:
    clipped = np.nan_to_num(values).clip(0, 65_535).astype(np.uint16)
    return clipped if np.array_equal(clipped, values) else REFUSED
