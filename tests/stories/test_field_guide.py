"""The field guide runs: each entry says what it says, and mended it does what it should."""

import re
from collections.abc import Iterator
from html import escape
from typing import Any

import pytest
from torch import device
from torch.utils.data import DataLoader

from course_stories.field_guide import Search, lacking, pages, search, show
from course_stories.field_guide.cards import Shown
from keepfed.errors import KeepfedError
from keepfed.field_guide import ANY, TOPICS, entries, look_up

QUICK = {"unequal_shapes", "duplicate_samples"}
EACH = [
    pytest.param(name, marks=[] if name in QUICK else pytest.mark.full, id=name)
    for name in entries()
]


def says(text: str, pattern: str) -> bool:
    parts = map(re.escape, pattern.split(ANY))
    return re.search(".*".join(parts), " ".join(text.split())) is not None


@pytest.mark.slow
@pytest.mark.parametrize("name", EACH)
def test_an_entry_says_what_it_says_and_mended_it_does_not(name: str) -> None:
    entry = entries()[name]
    if why := lacking(entry):
        pytest.skip(why)
    shown = show(name)
    assert says(shown.before, entry.prints), shown.before
    assert says(shown.after, entry.prints_fixed), shown.after
    if name != "crash":  # which still crashes, and says where
        assert not says(shown.after, entry.prints), shown.after
    if entry.messages:
        assert entry in look_up(shown.before)
    assert escape(shown.before) in shown._repr_html_()


def test_the_box_shows_what_it_finds_and_says_what_is_not_known() -> None:
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


def test_a_button_runs_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Shown(entries()["unequal_shapes"], "it broke", "it worked")
    monkeypatch.setattr(search, "show", lambda name: shown)
    (found,) = Search("stack expects each tensor to be equal size, but got").found.children
    card, button = found.children
    button.click()
    assert "it broke" in card.value
    assert button.description == "Run it again"


def test_what_a_machine_lacks_is_said_and_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("multiprocessing.get_all_start_methods", lambda: ["spawn"])
    assert show("gpu_time").before == "Not run here: it needs a GPU."
    assert (
        "it is about fork, which this system does not have" in show("copied_strings")._repr_html_()
    )
    with pytest.raises(KeepfedError, match="There is no entry 'nothing'; choose one of: "):
        show("nothing")


def test_the_remedy_without_a_gpu_is_silent_on_a_mac(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.accelerator.is_available", lambda: True)
    monkeypatch.setattr("torch.accelerator.current_accelerator", lambda *_, **__: device("mps"))
    with pytest.warns(UserWarning, match="not supported on MPS"):
        list(DataLoader(range(8), pin_memory=True))  # type: ignore[arg-type]
    exec(entries()["no_gpu"].fixed)  # warnings are errors here


def test_the_book_has_every_entry_below_the_heading_of_its_topic() -> None:
    page = pages()._repr_html_()
    assert page.count("show(&#x27;") + page.count("show('") == len(entries())
    places = [page.index(f"<h4>{heading}") for heading in TOPICS.values()]
    assert places == sorted(places)


def widgets(box: Any) -> Iterator[Any]:
    for child in box.children:
        yield child
        yield from widgets(child) if hasattr(child, "children") else ()
