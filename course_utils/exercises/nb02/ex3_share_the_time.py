"""Exercise 02.3: calculate the share of time in which a GPU waits."""

from collections.abc import Callable
from typing import Any

import numpy as np

from course_utils.exercises.judging import Kind, Slips, judge_rule, read_number
from course_utils.teaching.exercise import Verdict, exercise, expect

RATIOS = (1.3, 0.5, 1.0, 1.7, 4.0, 0.01, 250.0, 1e5)
WITHIN = 0.0051  # two digits are enough

Shares = tuple[float, float]  # with one worker, and without


def _shares(ratio: float) -> Shares:
    return 1 - 1 / max(1.0, ratio), ratio / (ratio + 1)


_SLIPS: Slips[float, Shares] = {
    "30 % is the wait divided by the compute time, as on the slide. The question is about the "
    "share of the complete time.": (
        "Divide the wait by the time of the complete step.",
        lambda ratio: (ratio - 1, _shares(ratio)[1]),
        lambda ratio: (max(0.0, ratio - 1), _shares(ratio)[1]),
        lambda ratio: (ratio - 1, ratio),
        lambda ratio: (max(0.0, ratio - 1), ratio),
    ),
    "At a ratio of 0.5, your share with a worker is negative. If loading is faster, the GPU does "
    "not wait, and a step takes the compute time.": (
        "The step takes max(load, compute).",
        lambda ratio: (1 - 1 / ratio, _shares(ratio)[1]),
    ),
    "The two shares are swapped. Without workers, the GPU waits longer.": (
        "Return the share with one worker first.",
        lambda ratio: _shares(ratio)[::-1],
    ),
    "You return the same share twice, but without workers nothing overlaps.": (
        "Without workers, the step takes load + compute.",
        lambda ratio: (_shares(ratio)[0],) * 2,
        lambda ratio: (_shares(ratio)[1],) * 2,
    ),
}


@exercise("02.3", title="A ratio of 1.3", seconds=30)
def share_the_time(waiting_share: Callable[[float], tuple[float, float]]) -> Verdict:
    """Check the waiting shares with one worker and with none, for several ratios."""
    return judge_rule(
        waiting_share,
        cases=RATIOS,
        truth=_shares,
        slips=_SLIPS,
        call="waiting_share({})".format,
        answer=Kind(_read, lambda shares, other: np.allclose(shares, other, rtol=0, atol=WITHIN)),
        praise="At 1.3, the GPU waits 23 % of the time with a worker and 57 % without. The 30 % of "
        "the slide is a share of the compute time only.",
    )


def _read(ratio: float, shares: Any) -> Shares:
    shares = shares.tolist() if hasattr(shares, "tolist") else shares
    refusal = f"For a ratio of {ratio}, your function returns {shares!r}, not two shares."
    advice = "End it with `return with_worker, without`."
    expect(isinstance(shares, tuple | list) and len(shares) == 2, refusal, advice)
    with_worker, without = (read_number(share, refusal, advice) for share in shares)
    return with_worker, without
