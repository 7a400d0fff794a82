import json
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import ipywidgets as widgets
import pytest

from course_utils.teaching.notebook import predict, prediction, reveal


@pytest.fixture(autouse=True)
def answers(scratch: Path) -> Iterator[Path]:
    yield scratch / "answers.json"
    widgets.Widget.close_all()


def kept(answers: Path, key: str) -> Any:
    return json.loads(answers.read_text("utf-8"))[key].get("predicted")


def field(form: widgets.VBox) -> Any:
    row = form.children[1]
    return row.children[0]


def status(form: widgets.VBox) -> str:
    return unescape(form.children[2].value)


def test_numbers_are_read_in_common_notations_and_others_are_rejected(answers: Path) -> None:
    for number, (typed, unit, value) in enumerate(
        (
            *((" 0,5 ", "", 0.5), ("1,500", "", 1500), ("-2.5", "", -2.5), ("1e3", "", 1000)),
            *(("0", "%", 0), ("40%", "%", 40), ("100 %", "%", 100), ("0", "ms", 0)),
        )
    ):
        form = predict(f"90.{number}", "How much?", unit=unit)
        assert "Not answered yet" in status(form)
        field(form).value = typed
        assert status(form).startswith("Saved: ")
        assert kept(answers, f"90.{number}") == value, typed
    no_number = "{!r} is not a number. Enter a number, for example 40."
    form, rate = predict("91.1", "How much?", unit="%"), predict("91.2", "How much?", unit="it/s")
    for typed, sentence in (
        ("-20", "A share must be between 0 and 100 %."),
        ("1,000,000,000 %", "A share must be between 0 and 100 %."),
        *((typed, no_number.format(typed)) for typed in ("much", "nan", "inf", "4 0 %")),
    ):
        field(form).value = typed
        assert status(form) == sentence
    field(rate).value = "-0.5 it/s"
    said = "A number in it/s cannot be negative. Enter a number, for example 40."
    assert (status(rate), kept(answers, "91.1"), kept(answers, "91.2")) == (said, None, None)


def test_choice_is_stored_and_compared_as_text(answers: Path) -> None:
    form = predict("90.2", "What is slow?", choices=["storage", "CPU"])
    assert field(form).value is None
    field(form).value = "CPU"
    assert kept(answers, "90.2") == "CPU"
    assert repr(reveal("90.2", "storage")) == 'You predicted "CPU", and it is "storage".'
    assert ">predicted<" not in reveal("90.2", "storage")._repr_html_()


def test_stored_answer_is_shown_again_even_without_widgets() -> None:
    field(predict("90.1", "How busy?", unit="%")).value = "40"
    form = predict("90.1", "How busy?", unit="%")
    assert (field(form).value, status(form)) == ("40", "Saved: 40 %")
    bundle = form._repr_mimebundle_()
    assert bundle["text/plain"] == "Predict: How busy? Saved: 40 %"
    assert "application/vnd.jupyter.widget-view+json" in bundle


def test_comparison_shows_a_ratio_and_bars_on_one_scale() -> None:
    for unit, guess, measured, sentence in (
        ("%", 40, 80, "You predicted 40 %, and it is 80 %, 2 times more than you predicted."),
        ("%", 40, 42, "You predicted 40 %, and it is 42 %, which is close."),
        ("%", 40, 40, "You predicted 40 %, which is correct."),
        ("%", 0, 12, "You predicted 0 %, and it is 12 %."),
        ("times", 4, 1.001, "You predicted 4 times, and it is 1 time, 4 times less than you pred"),
        ("ms", 1, 1.5, "You predicted 1 ms, and it is 1.5 ms, 1.5 times more than you predicted."),
        ("it/s", 1234, 1e5, "You predicted 1,234 it/s, and it is 100,000 it/s, 81 times more"),
    ):
        field(predict("90.1", "How much?", unit=unit)).value = str(guess)
        shown = reveal("90.1", measured)
        assert repr(shown).startswith(sentence)
        longest = max(guess, measured) if unit == "%" else 100  # the track ends at 100 %
        html = shown._repr_html_()
        assert f"width:{longest:.1f}%" in html, sentence
        assert html.index("gradient") < html.index(">measured<"), "only the guess is hatched"
        assert html.count("gradient") == 1


def test_measurement_is_shown_without_a_guess_and_advice_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prediction, "_advised", False)
    predict("90.1", "How busy?", unit="%")
    shown = reveal("90.1", 81)
    assert repr(shown).startswith("Measured: 81 %. You made no prediction here")
    assert ">measured<" not in shown._repr_html_(), "a single bar would have the full length"
    assert repr(reveal("90.9", 3.0)) == "Measured: 3."
    assert repr(reveal("90.9", "a larger model")) == "It is a larger model."


def test_damaged_file_is_renamed(answers: Path) -> None:
    answers.write_text("{", "utf-8")
    assert "Not answered yet" in status(predict("90.1", "How busy?"))
    assert answers.with_suffix(".damaged").exists()
