"""Exercise 02.3: which share of the time a GPU waits if loading takes 1.3 times the computing."""

from collections.abc import Callable
from math import isclose
from typing import Any

from course_exercises.judging import Kind, Slips, judge_rule, read_number
from course_utils.teaching.exercise import Verdict, exercise, expect

CLOSE = 0.005
RATIOS = (1.3, 0.5, 1.0, 1.7, 4.0)

Shares = tuple[float | None, float | None]  # with a worker, without; None: whatever it is


def _overlapped(ratio: float) -> float:
    return 1 - 1 / max(1.0, ratio)


def _serial(ratio: float) -> float:
    return ratio / (ratio + 1)


_HOW = "Set compute to 1 and load to the ratio: load / (load + compute)."
_SLIPS: Slips[float, Shares] = {
    "30 % is the wait divided by the compute time, as on the slide. The question is for a share "
    "of all the time.": (
        "Divide the wait by the time of the whole step.",
        lambda ratio: (ratio - 1, None),
        lambda ratio: (max(0.0, ratio - 1), None),
    ),
    "At a ratio of 0.5 your share with a worker is negative. A worker that is faster than the GPU "
    "lets nobody wait, and a step still lasts as long as its compute time.": (
        "The step lasts max(load, compute).",
        lambda ratio: (1 - 1 / ratio, None),
    ),
    "The two shares are the wrong way round: without workers the GPU waits longer.": (
        "Return the share with a worker first.",
        lambda ratio: (_serial(ratio), _overlapped(ratio)),
    ),
    "You return the same share twice, but without workers nothing overlaps.": (
        _HOW,
        lambda ratio: (_overlapped(ratio), _overlapped(ratio)),
    ),
}


@exercise("02.3", title="A ratio of 1.3")
def share_the_time(waiting_share: Callable[[float], tuple[float, float]]) -> Verdict:
    """Expect for a ratio load / compute the waiting shares with one worker and with none."""
    return judge_rule(
        waiting_share,
        cases=RATIOS,
        truth=lambda ratio: (_overlapped(ratio), _serial(ratio)),
        slips=_SLIPS,
        answer=Kind(_read, lambda shares, others: all(map(_close, shares, others))),
        praise="At 1.3 the GPU waits 23 % of the time with a worker and 57 % without. The 30 % of "
        "the slide are a share of the compute time, which is not all of the time.",
        otherwise=_explain,
    )


def _read(_: float, shares: Any) -> Shares:
    shares = shares.tolist() if hasattr(shares, "tolist") else shares
    refusal = f"Your function returns {shares!r}, not two shares."
    advice = "End it with `return with_worker, without`."
    expect(hasattr(shares, "__getitem__") and len(shares) == 2, refusal, advice)
    with_worker, without = (read_number(share, refusal, advice) for share in shares)
    return with_worker, without


def _close(share: float | None, other: float | None) -> bool:
    return share is None or other is None or isclose(share, other, rel_tol=0, abs_tol=CLOSE)


def _explain(ratio: float, shares: Shares, true: Shares) -> tuple[str, str]:
    if max(share or 0 for share in shares) > 2:
        return "These are percentages; a share lies between 0 and 1.", "Leave out the factor 100."
    if not _close(shares[0], true[0]):
        return (
            f"At a ratio of {ratio:g} you return {shares[0]:.2f} with a worker. It loads while the "
            "GPU computes, so the step lasts as long as the slower of the two.",
            "Set compute to 1 and load to the ratio; the wait is max(load, compute) - compute.",
        )
    return (
        f"At a ratio of {ratio:g} you return {shares[1]:.2f} without workers. The step lasts load "
        "+ compute, and the GPU waits during all of the load.",
        _HOW,
    )
