"""The picture of a question on the wall: positions on a scale, ticks, and a sentence."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

from matplotlib.ticker import MaxNLocator

from course_utils.stories.wall.questions import Question
from course_utils.teaching.notebook.prediction import with_unit

_SPREAD = 10  # ratio of numbers of times that need a logarithmic scale
_WIDE = 100  # the same for other units
_FEWEST = 4  # minimum number of guesses for a sentence about their median


class Scale(NamedTuple):
    """A linear or logarithmic scale. Values outside are shown at its ends."""

    ticks: list[float]  # the labeled values, from end to end
    log: bool = False

    def at(self, value: float) -> float:
        """Return the position of a value, from 0 to 1."""
        low, high = self.ticks[0], self.ticks[-1]
        value = min(max(value, low), high)
        if self.log:
            return round(math.log(value / low) / math.log(high / low), 4)
        return round((value - low) / (high - low), 4)


def scale_for(values: Sequence[float], unit: str) -> Scale:
    """Return a scale on which a few extreme values do not squeeze the others together."""
    if unit.startswith("%"):
        return Scale([0, 20, 40, 60, 80, 100])
    ordered = sorted(values)
    low, high = (ordered[round(share * (len(ordered) - 1))] for share in (0.1, 0.9))
    if low > 0 and high / low > (_SPREAD if unit == "times" else _WIDE):
        shown = [value for value in ordered if low / 10 <= value <= high * 10]
        first, last = math.floor(math.log10(shown[0])), math.ceil(math.log10(shown[-1]))
        step = math.ceil((last - first) / 6)
        return Scale([10.0**power for power in range(first, last + step, step)], log=True)
    reach = 3 * ((high - low) or abs(high) or 1)
    shown = [value for value in ordered if low - reach <= value <= high + reach]
    bottom, top = min(0, shown[0]), max(0, shown[-1]) or 1
    return Scale([float(tick) for tick in MaxNLocator(6).tick_values(bottom, top)])


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
        sentences.append(f"The median guess is {with_unit(median(guesses), question.unit)}.")
    sentences += [f"Measured: {with_unit(value, question.unit)}." for value in middle]
    return {
        "dots": [scale.at(value) for value in sorted(guesses)],
        "marks": [scale.at(value) for value in sorted(measured)],
        "median": [scale.at(value) for value in middle],
        "ticks": [[scale.at(value), with_unit(value, "")] for value in scale.ticks],
        "log": scale.log,
        "sentence": " ".join(sentences),
    }
