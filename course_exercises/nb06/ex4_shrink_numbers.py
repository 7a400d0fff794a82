"""Check of notebook 06: numbers as uint16, all of them or none."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from course_utils.teaching.exercise import Verdict, exercise, expect, refuse, right

Shrink = Callable[[NDArray[Any]], Any]

_FITS: dict[str, NDArray[Any]] = {
    "int64 sensor numbers": np.array([0, 17, 5159, 4711]),
    "the limits 0 and 65,535": np.array([0, 65_535]),
    "whole numbers held as float32, as in the pulses": np.array([0, 5159, 3], np.float32),
    "a table": np.arange(12).reshape(3, 4),
    "every second number of an array": np.arange(20)[::2],
    "an event without pulses": np.array([], np.int64),
    "uint64": np.array([65_535, 1], np.uint64),
    "uint16 already": np.array([7, 65_535], np.uint16),
}
# why each comes out wrong without a word, and what there is of the kind
_REFUSED: dict[str, dict[str, list[float] | NDArray[Any]]] = {
    "uint16 ends at 65,535, and numpy goes on from 0 without a word": {
        "65,536": [1, 65_536],
        "2 to the power of 40": [2**40, 3],
        "70,000.0": [70_000.0, 1.0],
    },
    "below 0 numpy goes on from the top, 65,535": {
        "-1": [3, -1],
        "-2.0": [-2.0, 3.0],
        "-1 as int16": np.array([-1, 4], np.int16),
    },
    "the sum is the same, and the numbers are not": {"-1 beside 65,536": [-1, 65_536]},
    "each number counts, and a sample of them tells nothing of the others": {
        "-1 somewhere in 100,000 numbers": np.where(np.arange(100_000) == 70_003, -1, 8)
    },
    "astype cuts off what stands behind the point": {
        "0.5": [0.5, 1],
        "65,534.75": [65_534.75],
        "-0.25": [-0.25],
        "0.5 between whole numbers": [0, 0.5, 1],
    },
    "close is not equal, and for allclose a half is close to 60,000": {
        "60,000.3": [60_000.3],
        "3.000000001": [3.000000001, 1],
    },
    "it compares as False with everything, and becomes any number": {
        "NaN": [1, np.nan],
        "NaN alone": [np.nan],
        "infinity": [np.inf, 2],
        "-infinity": [-np.inf],
    },
}


@exercise("06.4", title="Shrink without loss")
def shrink_without_loss(to_uint16: Shrink) -> Verdict:
    """Judge a function that returns the same numbers as uint16, or raises ValueError."""
    expect(
        callable(to_uint16),
        "This is no function; the check calls yours with arrays of its own.",
        "Hand over the function itself, without parentheses.",
    )
    with warnings.catch_warnings():
        # a cast of NaN warns on some machines, and on others not
        warnings.simplefilter("ignore", RuntimeWarning)
        for name, values in _FITS.items():
            _judge_fitting(to_uint16, name, values)
        for why, cases in _REFUSED.items():
            for name, numbers in cases.items():
                _judge_refusal(to_uint16, name, np.array(numbers), why)
    return right("What fits comes back the same in a quarter of the bytes; all else is refused.")


def _judge_fitting(to_uint16: Shrink, name: str, values: NDArray[Any]) -> None:
    before = values.copy()
    try:
        found = to_uint16(values)
    except ValueError as error:
        said = f" ({error})" if str(error) else ""
        expect(
            len(values),
            f"An event without pulses is refused{said}. No number in it is too large.",
            "max() of nothing raises; compare arrays as wholes.",
        )
        expect(
            values.max() < 65_535,
            f"65,535 is refused{said}. Sixteen bits hold the numbers from 0 to 65,535.",
            "Allow the limits themselves.",
        )
        expect(
            values.dtype.kind != "f",
            f"Whole numbers held as {values.dtype} are refused{said}. The type tells how they "
            "are kept; whether they fit is in the numbers.",
            "Judge the values, not the dtype: pulses keep sensor numbers as float32.",
        )
        refuse(
            f"Refused, though they fit: {name}{said}.",
            "Refuse only what is lost; the dtype says nothing of that.",
        )
    expect(
        isinstance(found, np.ndarray) and found.dtype == np.uint16,
        f"For {name} you return {_named(found)}, not an array of uint16.",
        "Return values.astype(np.uint16), after you have made sure that it loses nothing.",
    )
    expect(
        found.shape == values.shape and np.array_equal(found, before),
        f"For {name} other numbers come back than went in: {_some(before)} became {_some(found)}.",
        "Return the same numbers in the same shape.",
    )
    expect(
        np.array_equal(values, before),
        f"Your function changed the array that it was given ({name}). The caller still needs it.",
        "Work on a copy: astype makes one.",
    )


def _judge_refusal(to_uint16: Shrink, name: str, values: NDArray[Any], why: str) -> None:
    try:
        found = to_uint16(values)
    except ValueError:
        return
    except (AssertionError, OverflowError, TypeError) as error:
        refuse(
            f"{name} raises {type(error).__name__}. A caller that expects ValueError misses it, "
            "and an assert is gone under python -O.",
            "Write: if ...: raise ValueError(...).",
        )
    if "numpy goes on" in why and np.array_equal(found, values.clip(0, 65_535)):
        why = "what was too large or too small was set to the limit, which looks like a measurement"
    refuse(
        f"{name} goes through: {_some(values)} became {_some(found)}. It is silent: {why}.",
        "Convert, compare the result with what came in, and raise ValueError if they differ.",
    )


def _named(found: Any) -> str:
    return f"an array of {found.dtype}" if isinstance(found, np.ndarray) else type(found).__name__


def _some(values: Any) -> str:
    return str(np.asarray(values).ravel()[:4].tolist())
