"""The instructor's pack: it has a page per notebook and matches the cells."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

from notebooks.build import HERE, number, parts, sources
from slides.build.markdown import read_deck
from slides.instructor import openings, pages
from slides.instructor.collect import main
from slides.instructor.contents import goals, guessed, notes, questions
from slides.instructor.pages import page, script_minutes, teacher_pages
from slides.instructor.schedule import Stop, timetable

SOURCES = sources(HERE / "source")


@pytest.mark.slow
def test_instructor_pack_is_up_to_date() -> None:
    assert main(["--check"]) == 0, "run `make notebooks`"


def test_notebook_pages_have_all_instructor_sections() -> None:
    for source in SOURCES:
        told = notes(source)
        assert {"Script", "Leave out", "Board", "Goes wrong"} <= set(told), source
        assert sorted(guessed(told.get("Guesses", ""))) == sorted(questions(source)), source


def test_script_takes_as_long_as_the_core() -> None:
    for source in SOURCES:
        core, _ = parts(source)
        assert abs(sum(script_minutes(notes(source)["Script"])) - core.minutes) <= 2, source


def test_each_core_exercise_checks_a_goal() -> None:
    for source in SOURCES:
        core, extra = parts(source)
        keys = {key for goal in goals(source) for key in goal.checks}
        assert core.exercises.keys() <= keys, source
        assert keys <= {*core.exercises, *extra.exercises, *questions(source)}, source
        assert len(goals(source)) > 1, source


def test_book_has_a_page_to_print_for_each_notebook_and_path() -> None:
    made = dict(teacher_pages())
    assert {f"teach/{number(source)}.md" for source in SOURCES} <= {*made}
    assert "2.1, 02a, 02b" in made["teach/02.md"]
    printed = re.findall(r"include\} (\w+)\.md", made["teach/half-a-day.md"])
    assert printed == ["00", "01", "02"]
    listed = made["teach/guide.md"].rpartition("{toctree}")[2]
    assert {f"teach/{name}.md" for name in re.findall(r"^[\w-]+$", listed, re.MULTILINE)} == {
        *made
    } - {"teach/guide.md"}


def test_two_slides_open_each_notebook(tmp_path: Path) -> None:
    path = tmp_path / "openings.md"
    path.write_text(openings.deck(), "utf-8")
    first, *slides = read_deck(path).slides
    notebooks = [source for source in SOURCES if number(source).isdecimal()]
    links = re.findall(r"#(notebook-\d+)", first.text)
    assert links == [f"notebook-{number(source)}" for source in notebooks]
    assert len(slides) == 2 * len(notebooks)
    for source, link, goal, question in zip(
        notebooks, links, slides[::2], slides[1::2], strict=True
    ):
        assert f'id="{link}"' in goal.text
        assert all(one.text in goal.text for one in goals(source))
        assert next(iter(questions(source).values())).text in question.text


def test_instructor_cells_are_merged_with_times_of_a_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "90_a.py"
    source.write_text(NOTEBOOK, "utf-8")
    monkeypatch.setattr(pages, "in_class", lambda *_: 14)
    text = "\n".join(page(source, *parts(source)))
    assert "- 0–4 min: Begin.\n- 4–14 min: Go on.\n## What people guess" in text
    assert "- **90a** *How long?* They say 1.\n- **90b** *Where?* They say here." in text


def test_only_full_days_have_lunch() -> None:
    rows = list(timetable([Stop(f"{n:02}", 40, 60) for n in range(6)]))
    assert [what for *_, what in rows if isinstance(what, str)] == [
        "*arrive, run* `course check`",
        "*break*",
        "*lunch*",
        "*break*",
        "*break*",
        "*break*",
    ]
    assert all(end == begin for (_, end, _), (begin, _, _) in pairwise(rows))
    short = timetable([Stop("00", 60, 80), Stop("01", 60, 80), Stop("02", 30, 40)])
    assert "*lunch*" not in [what for *_, what in short]


NOTEBOOK = """
# %% [markdown]
# # 90 · Try
#
# {minutes}

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Script.**
#
# - *2 min* Begin.
# - *5 min* Go on.
#
# **Guesses.**
#
# - **90a** They say 1.

# %%
text = "How long?"
cu.predict("90a", text)
cu.predict("90b", "Where?", choices=["here", "there"])

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **90b** They say here.
"""
