"""Ask for a prediction before measuring, and compare it with the measurement.

    predict("02a", "How busy is the GPU?", unit="%")
    reveal("02a", 100 * summary.utilization)

The answers are stored in a file next to the notebook, so they survive a restart of the kernel.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import ipywidgets as widgets

from course_utils.errors import CourseError
from course_utils.paths import scratch_folder
from course_utils.teaching.notebook.cards import bar, card, inline
from course_utils.teaching.notebook.wall import send
from keepfed.errors import KeepfedError, ReadError
from keepfed.files import replace_file
from keepfed.reading import read_json, reading

Answer = float | str

_CLOSE = 1.1  # ratio to the measurement; within 10 % counts as close
_ADVICE = (
    "You made no prediction here. Make the next one before you measure, even a rough one, because "
    "you remember surprises."
)
_advised = False  # once in a kernel is enough
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?")


def predict(
    key: str, question: str, *, unit: str = "", choices: Sequence[str] = ()
) -> widgets.VBox:
    """Show a form that asks `question` and stores the answer. The notebook works without it.

    Args:
        key: Notebook and letter, such as "02a" ("02.1" is an exercise). Pass the same to `reveal`.
        question: Quantity to predict.
        unit: Unit of the number, such as "%" or "batches/s".
        choices: Possible answers, if the answer is not a number.
    """
    kept = _load().get(key, {}).get("predicted")
    _store(key, question=question, unit=unit)
    status = widgets.HTML(inline(_status(kept, unit)))  # a Label would truncate long lines
    # The question stands above. Here it is the name that screen readers read, which RadioButtons
    # do not have.
    named = {"description": question, "style": {"description_width": "0"}}
    field: Any
    if choices:
        value = kept if kept in choices else None
        field = widgets.Select(options=choices, value=value, rows=len(choices), **named)
        field.layout.width = "auto"
    else:
        text = "" if kept is None else f"{kept:.15g}"
        field = widgets.Text(value=text, placeholder="your guess", **named)
        field.continuous_update = False
        field.layout.width = "12em"

    def keep(change: dict[str, Any]) -> None:
        try:
            guess = change["new"] if choices else _read_guess(change["new"], unit)
            _store(key, predicted=guess)
            send("guess", key, guess)
            status.value = inline(_status(guess, unit))
        except KeepfedError as error:
            status.value = inline(str(error))

    field.observe(keep, "value")
    # By default, lines in a widget are as far apart as its boxes.
    style = "display: inline-block; line-height: 1.5"
    title = widgets.HTML(f'<span style="{style}"><b>Predict:</b> {inline(question)}</span>')
    form = Form([title, widgets.HBox([field, widgets.Label(unit)]), status])
    form.key, form.in_words = key, f"Predict: {question} {_status(kept, unit)}"
    return form


def reveal(key: str, measured: Answer) -> Reveal:
    """Compare the prediction for `key` with the measurement, or show only the measurement."""
    global _advised
    entry = _load().get(key, {})
    measured = measured if isinstance(measured, str) else float(measured)
    send("measured", key, measured)
    question, unit = entry.get("question", ""), entry.get("unit", "")
    predicted = entry.get("predicted")
    advice = "" if _advised or predicted is not None else _ADVICE
    _advised = _advised or bool(advice)
    return Reveal(key, question, predicted, measured, unit, advice)


@dataclass(frozen=True)
class Reveal:
    """A prediction and the measurement."""

    key: str
    question: str
    predicted: Answer | None
    measured: Answer
    unit: str
    advice: str = ""

    @property
    def sentence(self) -> str:
        """The comparison as a sentence."""
        measured = with_unit(self.measured, self.unit)
        if self.predicted is None:
            said = "It is" if isinstance(self.measured, str) else "Measured:"
            return f"{said} {measured}. {self.advice}".rstrip()
        guessed = with_unit(self.predicted, self.unit)
        if isinstance(self.predicted, str):  # a choice may be words such as "waits forever"
            guessed, measured = f'"{guessed}"', f'"{measured}"'
        if self.predicted == self.measured:
            return f"You predicted {guessed}, which is correct."
        return f"You predicted {guessed}, and it is {measured}{self._distance()}."

    def _distance(self) -> str:
        guess, measured = self.predicted, self.measured
        if isinstance(guess, str | None) or isinstance(measured, str) or guess * measured <= 0:
            return ""  # a ratio would be meaningless
        factor = max(measured / guess, guess / measured)
        if factor <= _CLOSE:
            return ", which is close"
        times = f"{factor:,.1f}".removesuffix(".0")
        more = "more" if abs(measured) > abs(guess) else "less"
        return f", {times} times {more} than you predicted"

    def __repr__(self) -> str:
        """Return the comparison as a sentence."""
        return self.sentence

    def _repr_html_(self) -> str:
        title = self.question or f"Prediction {self.key}"
        return card("plain", title, self.sentence, body=self._bars())

    def _bars(self) -> str:
        """Return both values as bars. One alone would show nothing: it has the full length."""
        if not (isinstance(self.predicted, float) and isinstance(self.measured, float)):
            return ""
        is_share = self.unit.startswith("%")
        longest = max(abs(self.predicted), abs(self.measured), 100 * is_share) or 1
        return "".join(
            bar(
                name,
                abs(value) / longest,
                with_unit(value, self.unit),
                guessed=name == "predicted",
                track=is_share,
            )
            for name, value in (("predicted", self.predicted), ("measured", self.measured))
        )


class Form(widgets.VBox):  # type: ignore[misc]
    """A form that also has a text version, for viewers without widgets."""

    key = in_words = ""

    def _repr_mimebundle_(self, **options: object) -> dict[str, object]:
        shown = getattr(super(), "_repr_mimebundle_", dict)  # ipywidgets 7 does not define it
        words = {"text/plain": self.in_words, "text/html": card("plain", self.in_words)}
        return {**shown(**options), **words}


def _read_guess(text: str, unit: str) -> float:
    bare = text.strip().removesuffix(unit).strip()
    bare = bare.replace(",", "") if _THOUSANDS.fullmatch(bare) else bare.replace(",", ".")
    number = math.nan
    with suppress(ValueError):
        number = float(bare)
    if not math.isfinite(number):
        problem = f"{text!r} is not a number. " if bare else ""
        raise CourseError(f"{problem}Enter a number, for example 40.")
    if unit == "%" and not 0 <= number <= 100:
        raise CourseError("A share must be between 0 and 100 %.")
    if unit and number < 0:
        raise CourseError(f"A number in {unit} cannot be negative. Enter a number, for example 40.")
    return number


def _status(kept: Answer | None, unit: str) -> str:
    if kept is None:
        return "Not answered yet. A guess is enough, and the notebook also runs without one."
    return f"Saved: {with_unit(kept, unit)}"


def with_unit(value: Answer, unit: str) -> str:
    """Return a number with its unit and three significant digits, or words unchanged."""
    if isinstance(value, str):
        return value
    # without an exponent for common sizes
    number = f"{value:,.0f}" if 100 <= abs(value) < 1e12 else f"{value:.3g}"
    return f"{number} {'time' if (number, unit) == ('1', 'times') else unit}".rstrip()


def _load() -> dict[str, dict[str, Any]]:
    path = scratch_folder() / "answers.json"
    with suppress(ReadError), reading(path):
        answers: dict[str, dict[str, Any]] = read_json(path)
        return {key: {**entry} for key, entry in answers.items()}
    if path.exists():  # a damaged file must not block the notebook
        path.replace(path.with_suffix(".damaged"))
    return {}


def _store(key: str, **entry: Answer) -> None:
    answers = _load()
    answers[key] = {**answers.get(key, {}), **entry}
    text = json.dumps(answers, indent=1, ensure_ascii=False)
    replace_file(scratch_folder() / "answers.json", text + "\n")
