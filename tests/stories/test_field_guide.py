"""The programs of the field guide: each prints its message, and works after the fix."""

import re
from collections.abc import Iterator
from html import escape
from typing import Any

import pytest

from course_utils.stories.field_guide import Search, missing_requirement, pages, search, show
from course_utils.stories.field_guide.cards import EntryRun
from keepfed.errors import KeepfedError
from keepfed.field_guide import ANY, TOPICS, entries, look_up

QUICK = {"unequal_shapes", "duplicate_samples"}


def says(text: str, pattern: str) -> bool:
    parts = map(re.escape, pattern.split(ANY))
    return re.search(".*".join(parts), " ".join(text.split())) is not None


def assert_as_told(name: str) -> None:
    """Fail unless the faulty program of an entry prints its message, and the fixed one does not."""
    entry, shown = entries()[name], show(name)
    if missing_requirement(entry):
        return
    assert says(shown.before, entry.prints), shown
    assert says(shown.after, entry.prints_fixed), shown
    if name != "crash":  # its fixed program still crashes, with a traceback
        assert not says(shown.after, entry.prints), shown
    if entry.messages:
        assert entry in look_up(shown.before)
    assert escape(shown.before) in shown._repr_html_()


@pytest.mark.slow
def test_faulty_program_prints_message_and_fixed_one_does_not() -> None:
    for name in QUICK:
        assert_as_told(name)


@pytest.mark.full
@pytest.mark.parametrize("name", sorted({*entries()} - QUICK))
def test_each_program_prints_message_only_before_the_fix(name: str) -> None:
    assert_as_told(name)


def test_search_shows_entries_or_reports_unknown_message() -> None:
    box = Search("is killed by signal: Bus error")
    (found,) = box.found.children
    assert "/dev/shm is full" in found.children[0].value
    for text, said in (("KeyError: 3", "Not known"), ("same random numbers", "worker_rng")):
        box.text.value = text
        box.look_up()
        assert said in str([getattr(one, "value", one) for one in widgets(box.found)])
    box.text.value = " "
    box.look_up()
    assert box.found.children == ()


def test_button_runs_the_program_of_an_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = EntryRun(entries()["unequal_shapes"], "it broke", "it worked")
    monkeypatch.setattr(search, "show", lambda name: shown)
    (found,) = Search("stack expects each tensor to be equal size, but got").found.children
    card, button = found.children
    button.click()
    assert "it broke" in card.value
    assert button.description == "Run it again"


def test_missing_requirement_is_reported_without_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("multiprocessing.get_all_start_methods", lambda: ["spawn"])
    assert show("gpu_time").before == "Not run here: it needs a GPU."
    assert "it needs fork, which this system does not have" in show("copied_strings")._repr_html_()
    with pytest.raises(KeepfedError, match="There is no entry 'nothing'"):
        show("nothing")


def test_pages_list_every_entry_under_its_topic() -> None:
    page = pages()._repr_html_()
    with_program = [entry for entry in entries().values() if entry.program]
    assert page.count("show(&#x27;") + page.count("show('") == len(with_program)
    assert page.count("<b>No program:</b>") == len(entries()) - len(with_program)
    places = [page.index(f"<h4>{heading}") for heading in TOPICS.values()]
    assert places == sorted(places)


def widgets(box: Any) -> Iterator[Any]:
    for child in box.children:
        yield child
        yield from widgets(child) if hasattr(child, "children") else ()
