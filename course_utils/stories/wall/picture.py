"""The picture of a question on the wall: positions on a scale, ticks, and a sentence."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

from course_utils.stories.wall.questions import Question

_SPREAD = 10  # ratio of numbers of times that need a logarithmic scale
_WIDE = 100  # the same for other units
_FEWEST = 4  # minimum number of guesses for a sentence about their median


class Scale(NamedTuple):
    """A linear or logarithmic scale. Values outside are shown at its ends."""

    low: float
    high: float
    step: float  # between two ticks; on a logarithmic scale, their ratio
    log: bool = False

    def at(self, value: float) -> float:
        """Return the position of a value, from 0 to 1."""
        low, value, high = self.low, min(max(value, self.low), self.high), self.high
        if self.log:
            low, value, high = math.log10(low), math.log10(value), math.log10(high)
        return round((value - low) / (high - low), 4)

    def ticks(self) -> list[float]:
        """Return the labelled values: decades, or round numbers."""
        if self.log:
            count = round(math.log(self.high / self.low, self.step))
            return [self.low * self.step**number for number in range(count + 1)]
        count = round((self.high - self.low) / self.step)
        return [self.low + self.step * number for number in range(count + 1)]


def scale_for(values: Sequence[float], unit: str) -> Scale:
    """Return a scale on which a few extreme values do not squeeze the others together."""
    if unit.startswith("%"):
        return Scale(0, 100, 20)
    ordered = sorted(values)
    low, high = (ordered[round(share * (len(ordered) - 1))] for share in (0.1, 0.9))
    if low > 0 and high / low > (_SPREAD if unit == "times" else _WIDE):
        shown = [value for value in ordered if low / 10 <= value <= high * 10]
        first, last = math.floor(math.log10(shown[0])), math.ceil(math.log10(shown[-1]))
        decades = math.ceil((last - first) / 6)
        last = first + decades * math.ceil((last - first) / decades)
        return Scale(10.0**first, 10.0**last, 10.0**decades, log=True)
    reach = 3 * ((high - low) or abs(high) or 1)
    shown = [value for value in ordered if low - reach <= value <= high + reach]
    bottom, top = min(0, shown[0]), max(0, shown[-1]) or 1
    power = 10.0 ** math.floor(math.log10((top - bottom) / 5))
    step = next(n * power for n in (1, 2, 5, 10) if n * power >= (top - bottom) / 5 * 0.999)
    return Scale(step * math.floor(bottom / step), step * math.ceil(top / step), step)


def draw(question: Question, guesses: Sequence[Any], measured: Sequence[Any]) -> dict[str, Any]:
    """Return the picture of a question as JSON.

    Args:
        question: The question.
        guesses: The guesses of all seats.
        measured: The measured values of all seats, or none while they are covered.
    """
    if question.choices:
        guessed, found = Counter(guesses), Counter(measured)
        bars = [[choice, guessed[choice], found[choice]] for choice in question.choices]
        sentence = f"Measured: {found.most_common(1)[0][0]}." if found else ""
        return {"bars": bars, "sentence": sentence}
    if not guesses and not measured:
        return {"sentence": ""}
    middle = [median(measured)] if measured else []
    scale = scale_for([*(guesses or measured), *middle], question.unit)
    sentences = []
    if len(guesses) >= _FEWEST:
        sentences.append(f"The median guess is {_amount(median(guesses), question.unit)}.")
    sentences += [f"Measured: {_amount(value, question.unit)}." for value in middle]
    return {
        "dots": [scale.at(value) for value in sorted(guesses)],
        "marks": [scale.at(value) for value in sorted(measured)],
        "median": [scale.at(value) for value in middle],
        "ticks": [[scale.at(value), _amount(value)] for value in scale.ticks()],
        "log": scale.log,
        "sentence": " ".join(sentences),
    }


def _amount(value: float, unit: str = "") -> str:
    """Return a number with three significant digits and its unit."""
    digits = f"{value:,.0f}" if 100 <= abs(value) < 1e9 else f"{value:.3g}"
    return f"{digits} {unit}".rstrip()
