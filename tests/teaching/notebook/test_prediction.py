"""Predictions: asked, kept over a restart, and set beside the measurement."""

import json
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import ipywidgets as widgets
import pytest

from course_utils.errors import CourseError
from course_utils.teaching.notebook import predict, reveal


@pytest.fixture(autouse=True)
def answers(scratch: Path) -> Iterator[Path]:
    yield scratch / "answers.json"
    widgets.Widget.close_all()


def kept(answers: Path, key: str = "90.1") -> Any:
    return json.loads(answers.read_text("utf-8"))[key].get("predicted")


def field(form: widgets.VBox) -> Any:
    row = form.children[1]
    return row.children[0]


def status(form: widgets.VBox) -> str:
    return unescape(form.children[2].value)


@pytest.mark.parametrize(
    ("typed", "unit", "number"),
    [
        *[("40", "", 40), (" 0,5 ", "", 0.5), ("1,500", "", 1500), ("-2.5", "", -2.5)],
        *[("1e3", "", 1000), ("0", "%", 0), ("40%", "%", 40), ("100 %", "%", 100)],
        *[("0", "ms", 0), ("1e6", "it/s", 1e6)],
    ],
)
def test_numbers_are_read_as_people_write_them(
    answers: Path, typed: str, unit: str, number: float
) -> None:
    form = predict("90.1", "How much?", unit=unit)
    assert "Not answered yet" in status(form)
    field(form).value = typed
    assert status(form).startswith("Kept: ")
    assert kept(answers) == number


NO_NUMBER = "{!r} is not a number; write for instance 40."


@pytest.mark.parametrize(
    ("typed", "unit", "sentence"),
    [
        ("-20", "%", "A share lies between 0 and 100 %."),
        ("1,000,000,000 %", "%", "A share lies between 0 and 100 %."),
        ("-0.5 it/s", "it/s", "A number in it/s is not below 0; write for instance 40."),
        *[(typed, "%", NO_NUMBER.format(typed)) for typed in ("much", "nan", "inf", "4 0 %")],
    ],
)
def test_what_cannot_be_is_refused(answers: Path, typed: str, unit: str, sentence: str) -> None:
    form = predict("90.1", "How much?", unit=unit)
    field(form).value = typed
    assert status(form) == sentence
    assert kept(answers) is None


def test_a_choice_is_kept_and_compared_in_words(answers: Path) -> None:
    form = predict("90.2", "What is slow?", choices=["storage", "CPU"])
    assert field(form).value is None
    field(form).value = "CPU"
    assert kept(answers, "90.2") == "CPU"
    assert repr(reveal("90.2", "storage")) == "You said CPU, it is storage."
    assert "you said" not in reveal("90.2", "storage")._repr_html_()


def test_a_guess_can_be_written_in_the_cell() -> None:
    assert status(predict("90.1", 40)) == "Kept: 40"
    assert status(predict("90.1", "How busy?", unit="%", answer=50)) == "Kept: 50 %"
    form = predict("90.2", "What is slow?", choices=["storage", "CPU"], answer="CPU")
    assert status(form) == "Kept: CPU"
    with pytest.raises(CourseError, match="'tape' is not among the choices: storage, CPU"):
        predict("90.2", answer="tape")


def test_asking_again_shows_what_was_kept() -> None:
    field(predict("90.1", "How busy?", unit="%")).value = "40"
    form = predict("90.1", "How busy?", unit="%")
    assert (field(form).value, status(form)) == ("40", "Kept: 40 %")


def test_the_form_can_be_read_where_no_widget_is_drawn() -> None:
    bundle = predict("90.1", "How busy?", unit="%")._repr_mimebundle_()
    assert bundle["text/plain"].startswith("Predict: How busy? Not answered yet.")
    assert "application/vnd.jupyter.widget-view+json" in bundle


@pytest.mark.parametrize(
    ("unit", "guess", "measured", "sentence"),
    [
        ("%", 40, 80, "You said 40 %, it is 80 %: 2 times more than you thought."),
        ("%", 80, 20, "You said 80 %, it is 20 %: 4 times less than you thought."),
        ("%", 40, 42, "You said 40 %, it is 42 %: close."),
        ("%", 40, 40, "You said 40 %, and so it is."),
        ("%", 0, 12, "You said 0 %, it is 12 %."),
        ("times", 1, 3, "You said 1 time, it is 3 times: 3 times more than you thought."),
        ("times", 4, 1.001, "You said 4 times, it is 1 time: 4 times less than you thought."),
        ("ms", 1, 1.5, "You said 1 ms, it is 1.5 ms: 1.5 times more than you thought."),
        ("it/s", 1234, 1e5, "You said 1,234 it/s, it is 100,000 it/s: 81 times more than you"),
    ],
)
def test_the_comparison_is_told_as_a_ratio(
    unit: str, guess: float, measured: float, sentence: str
) -> None:
    predict("90.1", "How much?", unit=unit, answer=guess)
    assert repr(reveal("90.1", measured)).startswith(sentence)


def test_without_a_guess_or_a_question_the_measurement_is_shown() -> None:
    predict("90.1", "How busy?", unit="%")
    shown = reveal("90.1", 81)
    assert repr(shown).startswith("Measured: 81 %. You made no guess here")
    assert "you said" not in shown._repr_html_()
    assert repr(reveal("90.9", 3.0)).startswith("Measured: 3. ")


def test_the_picture_draws_both_to_one_scale() -> None:
    predict("90.1", "How busy?", unit="%", answer=20)
    html = reveal("90.1", 80)._repr_html_()
    assert "width:25.0%" in html
    assert "width:100.0%" in html


def test_the_first_guess_that_met_a_measurement_is_kept_for_good(answers: Path) -> None:
    for guess, measured in ((20, 80), (80, 79)):
        predict("90.1", "How busy?", unit="%", answer=guess)
        reveal("90.1", measured)
    first = json.loads(answers.read_text("utf-8"))["90.1"]["first"]
    assert first == {"predicted": 20, "measured": 80}


def test_a_damaged_file_is_put_aside(answers: Path) -> None:
    predict("90.1", 40)
    answers.write_text("{", "utf-8")
    assert "Not answered yet" in status(predict("90.1", "How busy?"))
    assert answers.with_suffix(".damaged").exists()
