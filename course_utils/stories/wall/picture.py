"""The picture of a question on the wall: positions on a scale, ticks, and a sentence."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from course_utils.stories.wall.questions import Question

_SPREAD = 10  # ratio of numbers of times that need a logarithmic scale
_WIDE = 100  # the same for other units
_FEWEST = 4  # minimum number of values for a sentence about their median


class Scale(NamedTuple):
    """A linear or logarithmic scale. Values outside are shown at its ends."""

    low: float
    high: float
    log: bool = False

    def at(self, value: float) -> float:
        """Return the position of a value, from 0 to 1."""
        shown = min(max(value, self.low), self.high)
        place: Callable[[float], float] = math.log10 if self.log else float
        low, high = place(self.low), place(self.high)
        return round((place(shown) - low) / (high - low), 4)

    def ticks(self) -> list[float]:
        """Return the labelled values: decades, or round numbers."""
        if self.log:
            first, last = round(math.log10(self.low)), round(math.log10(self.high))
            every = math.ceil((last - first) / 6)
            return [10.0**power for power in range(first, last + 1, every)]
        step = _round_step(self.high - self.low)
        return [self.low + step * n for n in range(round((self.high - self.low) / step) + 1)]


def scale_for(values: Sequence[float], unit: str, more: Sequence[float] = ()) -> Scale:
    """Return a scale on which extreme values do not squeeze the others together.

    Only `values` decide whether it is logarithmic, so that this does not change when the
    measured values `more` are uncovered.
    """
    if unit.startswith("%"):
        return Scale(0, 100)
    also = [quantile(more, 0.1), quantile(more, 0.9)] if more else []
    low, high = quantile(values, 0.1), quantile(values, 0.9)
    if low > 0 and high / low > (_SPREAD if unit == "times" else _WIDE):
        shown = [one for one in values if low / 10 <= one <= high * 10]
        shown += [one for one in also if one > 0]
        powers = math.floor(math.log10(min(shown))), math.ceil(math.log10(max(shown)))
        return Scale(10.0 ** powers[0], 10.0 ** max(powers[1], powers[0] + 1), log=True)
    reach = 3 * ((high - low) or abs(high) or 1)
    shown = [one for one in values if low - reach <= one <= high + reach] + also
    bottom, top = min(0, *shown), max(0, *shown) or 1
    step = _round_step(top - bottom)
    return Scale(step * math.floor(bottom / step), step * math.ceil(top / step))


def draw(question: Question, guesses: Sequence[Any], measured: Sequence[Any]) -> dict[str, Any]:
    """Return the picture of a question as JSON.

    Args:
        question: The question.
        guesses: The guesses of all seats.
        measured: The measured values of all seats, or none while they are covered.
    """
    if question.choices:
        said, found = Counter(guesses), Counter(measured)
        bars = [[choice, said[choice], found[choice]] for choice in question.choices]
        sentence = ""
        if found:
            choice, count = found.most_common(1)[0]
            by = f", by {count} of {found.total()}" * (found.total() > 1)
            sentence = f"Measured: {choice}{by}."
        return {"bars": bars, "sentence": sentence}
    if not guesses and not measured:
        return {"dots": [], "sentence": ""}
    dots = sorted(guesses)
    scale = scale_for(dots or measured, question.unit, measured)
    ends = [round(0.1 * (len(dots) - 1)), round(0.9 * (len(dots) - 1))]
    beyond = sum(not scale.low <= value <= scale.high for value in dots)
    return {
        "dots": [scale.at(value) for value in dots],
        "rings": ends if len(dots) > _FEWEST else [],
        "marks": [scale.at(value) for value in sorted(measured)],
        "median": scale.at(quantile(measured, 0.5)) if measured else None,
        "ticks": [[scale.at(value), amount(value)] for value in scale.ticks()],
        "log": scale.log,
        "sentence": _sentence(question.unit, dots, measured)
        + (f" Not on the scale: {beyond}." if beyond else ""),
    }


def _sentence(unit: str, guesses: Sequence[float], measured: Sequence[float]) -> str:
    said = []
    if len(guesses) >= _FEWEST:
        said.append(f"The median guess is {amount(quantile(guesses, 0.5), unit)}.")
    if measured:
        low, high = (amount(quantile(measured, share)) for share in (0.1, 0.9))
        between = f", mostly {low} to {high}" if low != high else ""
        said.append(f"Measured: {amount(quantile(measured, 0.5), unit)}{between}.")
    return " ".join(said)


def amount(value: float, unit: str = "") -> str:
    """Return a number with three significant digits and its unit."""
    digits = f"{value:,.0f}" if 100 <= abs(value) < 1e9 else f"{value:.3g}"
    return f"{digits} {unit}".rstrip()


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which this share of all values is."""
    return sorted(values)[round(share * (len(values) - 1))]


def _round_step(length: float) -> float:
    """Return 1, 2 or 5 times a power of ten: the step of at most six ticks."""
    power = 10.0 ** math.floor(math.log10(length / 5))
    return next(one * power for one in (1, 2, 5, 10) if one * power >= length / 5 * 0.999)
