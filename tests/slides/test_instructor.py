"""The instructor's pack: it has a page per notebook and matches the cells."""

from itertools import pairwise
from pathlib import Path

import pytest

from notebooks.build import HERE, BuildError, number, parts, sources
from slides.instructor.collect import demos, guessed, main, notes, page, questions, script_minutes
from slides.instructor.schedule import Stop, timetable

SOURCES = sources(HERE / "source")


@pytest.mark.slow
def test_instructor_pack_is_up_to_date() -> None:
    assert main(["--check"]) == 0, "run `make notebooks`"


@pytest.mark.parametrize("source", SOURCES, ids=number)
def test_notebook_pages_have_all_instructor_sections(
    source: Path,
) -> None:
    told = notes(source)
    assert {"Script", "Board", "Goes wrong"} <= set(told)
    assert sorted(guessed(told.get("Guesses", ""))) == sorted(questions(source))


@pytest.mark.parametrize("source", SOURCES, ids=number)
def test_script_takes_as_long_as_the_core(source: Path) -> None:
    core, _ = parts(source)
    assert abs(sum(script_minutes(notes(source)["Script"])) - core.minutes) <= 2


def test_each_demo_appears_in_a_notebook_script() -> None:
    rows = [row for row in demos(SOURCES) if row.startswith("| `")]
    assert rows
    assert [row for row in rows if row.endswith("|  |")] == []


def test_instructor_cells_are_merged_with_running_times(tmp_path: Path) -> None:
    source = tmp_path / "90_a.py"
    source.write_text(NOTEBOOK, "utf-8")
    text = "\n".join(page(source))
    assert "- 0–2 min: Begin.\n- 2–7 min: Go on.\n### What people guess" in text
    assert "- **90a** *How long?* They say 1.\n- **90b** *Where?* They say here." in text


def test_instructor_cell_without_first_line_is_reported(tmp_path: Path) -> None:
    source = tmp_path / "90_a.py"
    source.write_text(NOTEBOOK.replace("*For the instructor*", "Hello"), "utf-8")
    with pytest.raises(BuildError, match=r"90_a\.py: the cell 'Hello"):
        notes(source)


def test_only_full_days_have_lunch() -> None:
    rows = list(timetable([Stop(f"{n:02}", 60) for n in range(6)]))
    assert [what for *_, what in rows if isinstance(what, str)] == [
        "*break*",
        "*break*",
        "*lunch*",
        "*break*",
        "*break*",
    ]
    assert all(end == begin for (_, end, _), (begin, _, _) in pairwise(rows))
    short = timetable([Stop("00", 80), Stop("01", 80), Stop("02", 60)])
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
