"""Predictions: asked, kept over a restart, and set beside the measurement."""

import json
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import ipywidgets as widgets
import pytest

from course_utils.errors import CourseError
from course_utils.teaching.notebook import predict, reveal, state_folder


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    state_folder.cache_clear()
    yield
    state_folder.cache_clear()
    widgets.Widget.close_all()


def _answers() -> dict[str, Any]:
    answers: dict[str, Any] = json.loads((state_folder() / "answers.json").read_text("utf-8"))
    return answers


def _field(form: widgets.VBox) -> Any:
    row = form.children[1]
    return row.children[0]


def _status(form: widgets.VBox) -> str:
    return unescape(form.children[2].value)


def test_the_form_asks_and_keeps_what_is_typed() -> None:
    form = predict("90.1", "How busy is the GPU?", unit="%")
    assert "Not answered yet" in _status(form)
    _field(form).value = "40 %"
    assert _status(form) == "Kept: 40 %"
    assert _answers()["90.1"]["predicted"] == 40


@pytest.mark.parametrize(
    ("typed", "number"),
    [("40", 40), (" 0,5 ", 0.5), ("1,500", 1500), ("-2.5", -2.5), ("1e3", 1000)],
)
def test_numbers_are_read_as_people_write_them(typed: str, number: float) -> None:
    _field(predict("90.1", "How much?")).value = typed
    assert _answers()["90.1"]["predicted"] == number


@pytest.mark.parametrize(
    ("typed", "unit", "sentence"),
    [
        ("-20", "%", "A share lies between 0 and 100 %."),
        ("1,000,000,000 %", "%", "A share lies between 0 and 100 %."),
        ("-1", "times", "A number in times is not below 0; write for instance 40."),
        ("-0.5 it/s", "it/s", "A number in it/s is not below 0; write for instance 40."),
        ("-3", "ms", "A number in ms is not below 0; write for instance 40."),
    ],
)
def test_what_cannot_be_is_refused(typed: str, unit: str, sentence: str) -> None:
    form = predict("90.1", "How much?", unit=unit)
    _field(form).value = typed
    assert _status(form) == sentence
    assert "predicted" not in _answers()["90.1"]


@pytest.mark.parametrize(
    ("typed", "unit", "number"),
    [("0", "%", 0), ("40%", "%", 40), ("100 %", "%", 100), ("0", "ms", 0), ("1e6", "it/s", 1e6)],
)
def test_what_can_be_is_kept(typed: str, unit: str, number: float) -> None:
    _field(predict("90.1", "How much?", unit=unit)).value = typed
    assert _answers()["90.1"]["predicted"] == number


@pytest.mark.parametrize("typed", ["much", "nan", "inf", "4 0 %"])
def test_what_is_no_number_is_refused_with_an_example(typed: str) -> None:
    form = predict("90.1", "How much?", unit="%")
    _field(form).value = typed
    assert _status(form) == f"{typed!r} is not a number; write for instance 40."
    assert "predicted" not in _answers()["90.1"]


def test_a_choice_is_kept() -> None:
    form = predict("90.2", "What is slow?", choices=["storage", "CPU"])
    assert _field(form).value is None
    _field(form).value = "CPU"
    assert _answers()["90.2"]["predicted"] == "CPU"


def test_a_guess_can_be_written_in_the_cell() -> None:
    assert _status(predict("90.1", 40)) == "Kept: 40"
    assert _status(predict("90.1", "How busy?", unit="%", answer=50)) == "Kept: 50 %"
    form = predict("90.2", "What is slow?", choices=["storage", "CPU"], answer="CPU")
    assert _status(form) == "Kept: CPU"
    with pytest.raises(CourseError, match="'tape' is not among the choices: storage, CPU"):
        predict("90.2", answer="tape")


def test_asking_again_shows_what_was_kept() -> None:
    _field(predict("90.1", "How busy?", unit="%")).value = "40"
    form = predict("90.1", "How busy?", unit="%")
    assert (_field(form).value, _status(form)) == ("40", "Kept: 40 %")


def test_the_form_can_be_read_where_no_widget_is_drawn() -> None:
    bundle = predict("90.1", "How busy?", unit="%")._repr_mimebundle_()
    assert bundle["text/plain"].startswith("Predict: How busy? Not answered yet.")
    assert "application/vnd.jupyter.widget-view+json" in bundle


@pytest.mark.parametrize(
    ("guess", "measured", "sentence"),
    [
        (40, 80, "You said 40 %, it is 80 %: 2 times more than you thought."),
        (80, 20, "You said 80 %, it is 20 %: 4 times less than you thought."),
        (40, 42, "You said 40 %, it is 42 %: close."),
        (40, 40, "You said 40 %, and so it is."),
        (0, 12, "You said 0 %, it is 12 %."),
    ],
)
def test_the_comparison_is_told_as_a_ratio(guess: float, measured: float, sentence: str) -> None:
    predict("90.1", "How busy?", unit="%", answer=guess)
    assert repr(reveal("90.1", measured)) == sentence


@pytest.mark.parametrize(
    ("unit", "guess", "measured", "sentence"),
    [
        ("times", 1, 3, "You said 1 time, it is 3 times: 3 times more than you thought."),
        ("times", 4, 1.001, "You said 4 times, it is 1 time: 4 times less than you thought."),
        ("ms", 1, 1.5, "You said 1 ms, it is 1.5 ms: 1.5 times more than you thought."),
        ("it/s", 1234, 123456, "You said 1,234 it/s, it is 123,456 it/s: 100 times more than"),
    ],
)
def test_numbers_agree_with_their_unit(
    unit: str, guess: float, measured: float, sentence: str
) -> None:
    predict("90.1", "How much?", unit=unit, answer=guess)
    assert repr(reveal("90.1", measured)).startswith(sentence)


def test_a_choice_is_compared_in_words() -> None:
    predict("90.2", "What is slow?", choices=["storage", "CPU"], answer="CPU")
    assert repr(reveal("90.2", "storage")) == "You said CPU, it is storage."
    assert "you said" not in reveal("90.2", "storage")._repr_html_()


def test_without_a_guess_the_measurement_is_shown() -> None:
    predict("90.1", "How busy?", unit="%")
    shown = reveal("90.1", 81)
    assert repr(shown).startswith("Measured: 81 %. You made no guess here")
    assert "you said" not in shown._repr_html_()


def test_a_reveal_needs_no_question_before_it() -> None:
    assert repr(reveal("90.9", 3.0)).startswith("Measured: 3. ")


def test_the_picture_draws_both_to_one_scale() -> None:
    predict("90.1", "How busy?", unit="%", answer=20)
    html = reveal("90.1", 80)._repr_html_()
    assert "width:25.0%" in html
    assert "width:100.0%" in html


def test_the_first_guess_that_met_a_measurement_is_kept_for_good() -> None:
    predict("90.1", "How busy?", unit="%", answer=20)
    reveal("90.1", 80)
    predict("90.1", "How busy?", unit="%", answer=80)
    reveal("90.1", 79)
    assert _answers()["90.1"]["first"] == {"predicted": 20, "measured": 80}


def test_a_damaged_file_is_put_aside() -> None:
    predict("90.1", 40)
    (state_folder() / "answers.json").write_text("{", "utf-8")
    assert "Not answered yet" in _status(predict("90.1", "How busy?"))
    assert (state_folder() / "answers.damaged").exists()
