"""The report of a rescue: saved with every keystroke, with a page to hand in and hints."""

from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path

import ipywidgets as widgets
import pytest

from course_utils.stories.capstone import add_result
from course_utils.stories.capstone.report import write_report
from course_utils.teaching.notebook import Form
from tests.stories.wall.helpers import GOOD

WRITTEN = {
    "Hypothesis 1": "Every event opens its file again.",
    "Evidence 1": "7 of 9 ms of a sample are open().",
    "Change 1": "One file for each worker.",
    "Effect 1": "AU 12 % before, 40 % now; 2,000 of 2,000 events.",
}


@pytest.fixture(autouse=True)
def _close_widgets(scratch: Path) -> Iterator[None]:
    yield
    widgets.Widget.close_all()


def fields(form: Form) -> dict[str, widgets.Textarea]:
    return {field.description: field for row in form.children[1].children for field in row.children}


def said(form: Form) -> str:
    return unescape(form.children[3].value)


def fill(form: Form, written: dict[str, str]) -> None:
    for name, text in written.items():
        fields(form)[name].value = text


def test_report_survives_a_restart(scratch: Path) -> None:
    form = write_report()
    assert "Report: empty" in said(form)
    assert not (scratch / "capstone_report.json").exists()
    fill(form, WRITTEN)
    form.children[2].click()
    fill(form, {"Change 2": "ünïcode <b>\n## and lines"})
    again = write_report()
    texts = {name: field.value for name, field in fields(again).items()}
    assert texts.items() >= WRITTEN.items()
    assert texts["Change 2"] == "ünïcode <b>\n## and lines"
    assert list(texts) == [
        f"{part} {number}"
        for number in (1, 2)
        for part in ("Hypothesis", "Evidence", "Change", "Effect")
    ]


def test_report_names_first_missing_part() -> None:
    form = write_report()
    form.children[2].click()  # an empty change does not count
    lacks = [
        ("Evidence 1", "storage", "Hypothesis 1 is missing. What costs the most time"),
        ("Hypothesis 1", "storage", "Evidence 1 contains no number. What did you count"),
        ("Evidence 1", "7 ms", "Change 1 is missing. What did you change?"),
        ("Change 1", " ", "Change 1 is missing."),
        ("Change 1", "a cache", "Effect 1 is missing. What did you measure afterwards"),
        ("Effect 1", "faster", "Effect 1 contains no number."),
    ]
    for name, text, lack in lacks:
        fill(form, {name: text})
        assert "Report: 1 change, 0 complete" in said(form)
        assert lack in said(form)
    fill(form, {"Effect 1": "AU 40 %"})
    assert "Report: 1 change, 1 complete" in said(form)
    assert "Nothing is missing." in said(form)


def test_page_contains_changes_and_check_results(scratch: Path) -> None:
    add_result(GOOD)
    form = write_report()
    assert "18:40, seed 0: 85 points" in unescape(form.children[0].value)
    fill(form, WRITTEN)
    page = (scratch.parent / "capstone_report.md").read_text("utf-8")
    assert page.startswith("# Rescue of a training run: report\n\n## Change 1\n\n**Hypothesis.** E")
    assert "**Effect.** AU 12 % before, 40 % now" in page
    assert page.endswith(f"## Checks\n\n- {GOOD.when}, seed 0: {GOOD}\n")
    add_result(replace(GOOD, points=100))
    write_report()
    assert "**Change.** One file for" in str(write_report()._repr_mimebundle_()["text/plain"])
    assert ": 100 points" in (scratch.parent / "capstone_report.md").read_text("utf-8")


def test_damaged_file_is_renamed(scratch: Path) -> None:
    for text in "", "[]", '{"changes": [{}]}':
        (scratch / "capstone_report.json").write_text(text, "utf-8")
        assert not any(field.value for field in fields(write_report()).values())
        assert (scratch / "capstone_report.damaged").read_text("utf-8") == text


def test_full_disk_is_reported_in_the_form(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    form = write_report()

    def full(path: Path, content: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("course_utils.stories.capstone.report.replace_file", full)
    fill(form, WRITTEN)
    assert "Not saved" in said(form)
    assert "The disk is full. Free some space" in said(form)
