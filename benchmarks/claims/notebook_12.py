"""Count or measure the claims of notebook 12."""

import numpy as np

from course_utils.exercises.nb12.ex1_fill_the_card import DAYS


def days_of_the_plan() -> float:
    """Return the days that the planned training takes."""
    return round(DAYS, 1)


def share_missed_by_own_offsets() -> float:
    """Return the share of tokens in no window if each window has its own offset."""
    length, count = 128, 100_000
    rng = np.random.default_rng(0)
    starts = np.arange(count) * length + rng.integers(length, size=count)
    contained = (starts[:, None] + np.arange(length)).ravel()
    times_served = np.bincount(contained, minlength=count * length)
    return float(np.mean(times_served[length:-length] == 0))


def tokens_of_uint16() -> int:
    """Return how many tokens two bytes can distinguish."""
    return int(np.iinfo(np.uint16).max) + 1


def wrapped_token() -> int:
    """Return what becomes of token 70,000 in two bytes."""
    return int(np.array([70_000]).astype(np.uint16)[0])
