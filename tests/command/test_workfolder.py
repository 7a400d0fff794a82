import json
from pathlib import Path

import pytest

from course_utils.command.workfolder import HandedOut, hand_out, hand_out_beside
from course_utils.errors import CourseError

FIRST = "01_first.ipynb"


def write(folder: Path, source: str, *, name: str = FIRST, **metadata: str) -> None:
    cell = {"cell_type": "code", "source": [source], "outputs": [], "metadata": metadata}
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps({"cells": [cell], "metadata": metadata}))


def source(notebook: Path) -> str:
    return "".join(json.loads(notebook.read_text())["cells"][0]["source"])


@pytest.fixture
def shipped(tmp_path: Path) -> Path:
    write(tmp_path / "shipped", "version 1")
    return tmp_path / "shipped"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return tmp_path / "work"


def test_notebooks_are_copied_once_and_nothing_else(shipped: Path, work: Path) -> None:
    (shipped / "build.py").write_text("")
    assert hand_out(shipped, work).new == (FIRST,)
    assert [path.name for path in work.glob("[!.]*")] == [FIRST]
    before = (work / FIRST).stat().st_mtime_ns
    assert hand_out(shipped, work) == HandedOut((), (), ())
    assert (work / FIRST).stat().st_mtime_ns == before


def test_an_edited_copy_is_kept_and_told_as_soon_as_there_is_a_newer_version(
    shipped: Path, work: Path
) -> None:
    hand_out(shipped, work)
    write(work, "my answer")
    assert hand_out(shipped, work).kept == ()
    write(shipped, "version 2")
    for _ in range(2):
        assert hand_out(shipped, work).kept == (FIRST,)
        assert source(work / FIRST) == "my answer"


def test_an_unedited_copy_is_brought_up_to_date(shipped: Path, work: Path) -> None:
    hand_out(shipped, work)
    write(work, "version 1", editor="opened and saved by JupyterLab")
    write(shipped, "version 2")
    assert hand_out(shipped, work).refreshed == (FIRST,)
    assert source(work / FIRST) == "version 2"


@pytest.mark.parametrize("lost", ["", "no JSON", "[]"])
def test_without_knowing_what_was_handed_out_every_difference_is_kept(
    shipped: Path, work: Path, lost: str
) -> None:
    hand_out(shipped, work)
    (work / ".handed_out.json").write_text(lost)
    write(shipped, "version 2")
    assert hand_out(shipped, work).kept == (FIRST,)
    assert source(work / FIRST) == "version 1"


ANSWERED = '{"cells": [{"cell_type": "code", "source": "version 1", "outputs": [{"text": "42"}]}]}'


@pytest.mark.parametrize("content", ["", "{", '{"cells": 3}', '{"cells": [{}]}', ANSWERED])
def test_outputs_are_the_learner_s_work_and_a_broken_copy_is_kept_too(
    shipped: Path, work: Path, content: str
) -> None:
    hand_out(shipped, work)
    (work / FIRST).write_text(content)
    write(shipped, "version 2")
    assert hand_out(shipped, work).kept == (FIRST,)
    assert (work / FIRST).read_text() == content


def test_a_fresh_one_lands_beside_and_is_not_told_again(shipped: Path, work: Path) -> None:
    hand_out(shipped, work)
    write(work, "my answer")
    write(shipped, "version 2")
    for number, name in (("1", "01_first_new.ipynb"), ("01", "01_first_new2.ipynb")):
        copy = hand_out_beside(shipped, work, number=number)
        assert (copy.name, source(copy)) == (name, "version 2")
    assert source(work / FIRST) == "my answer"
    assert hand_out(shipped, work).kept == ()
    with pytest.raises(CourseError, match=r"no notebook 7; choose one of 01\."):
        hand_out_beside(shipped, work, number="7")


def test_a_course_without_notebooks_says_how_to_install_it(tmp_path: Path, work: Path) -> None:
    with pytest.raises(CourseError, match="install the course from its checkout"):
        hand_out(tmp_path, work)
