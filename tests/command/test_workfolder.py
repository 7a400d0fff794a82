import json
import shutil

import pytest

from course_utils.command.workfolder import HandedOut, hand_out
from course_utils.paths import REPO
from keepfed.errors import KeepfedError

FIRST, FIRST_SHIPPED = "01_first.ipynb", "01_build_a_dataset.ipynb"


def write(folder, source, *, name=FIRST, **metadata):
    cell = {"cell_type": "code", "source": [source], "outputs": [], "metadata": metadata}
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps({"cells": [cell], "metadata": metadata}))


def source(notebook):
    return "".join(json.loads(notebook.read_text())["cells"][0]["source"])


@pytest.fixture
def shipped(tmp_path):
    write(tmp_path / "shipped", "version 1")
    return tmp_path / "shipped"


@pytest.fixture
def work(tmp_path):
    return tmp_path / "work"


def test_notebooks_are_copied_once_and_nothing_else(shipped, work):
    (shipped / "build.py").write_text("")
    assert hand_out(shipped, work).new == (FIRST,)
    assert [path.name for path in work.glob("[!.]*")] == [FIRST]
    before = (work / FIRST).stat().st_mtime_ns
    assert hand_out(shipped, work) == HandedOut((), (), ())
    assert (work / FIRST).stat().st_mtime_ns == before


def test_an_edited_copy_is_kept_and_told_as_soon_as_there_is_a_newer_version(shipped, work):
    hand_out(shipped, work)
    write(work, "my answer")
    assert hand_out(shipped, work).kept == ()
    write(shipped, "version 2")
    for _ in range(2):
        assert hand_out(shipped, work).kept == (FIRST,)
        assert source(work / FIRST) == "my answer"
    (work / FIRST).rename(work / "01_mine.ipynb")
    assert hand_out(shipped, work).new == (FIRST,)
    assert source(work / FIRST) == "version 2"
    with pytest.raises(KeepfedError, match=r"no notebooks\. To fix this, run `make lab`"):
        hand_out(work / "nowhere", work)


def test_an_unedited_copy_is_brought_up_to_date(shipped, work):
    hand_out(shipped, work)
    write(work, "version 1", editor="opened and saved by JupyterLab")
    write(shipped, "version 2")
    assert hand_out(shipped, work).refreshed == (FIRST,)
    assert source(work / FIRST) == "version 2"


ANSWERED = '{"cells": [{"cell_type": "code", "source": "version 1", "outputs": [{"text": "42"}]}]}'


def test_outputs_a_broken_copy_and_one_of_unknown_origin_are_kept(shipped, work):
    for name, content in (
        *((FIRST, content) for content in ("", "{", '{"cells": 3}', '{"cells": [{}]}', ANSWERED)),
        *((".handed_out.json", lost) for lost in ("", "no JSON", "[]")),
    ):
        write(shipped, "version 1")
        shutil.rmtree(work, ignore_errors=True)
        hand_out(shipped, work)
        (work / name).write_text(content)
        before = (work / FIRST).read_text()
        write(shipped, "version 2")
        assert hand_out(shipped, work).kept == (FIRST,), content
        assert (work / FIRST).read_text() == before


def test_the_cell_that_installs_on_colab_is_not_handed_out_and_is_no_edit(tmp_path):
    shipped, work = tmp_path / "shipped", tmp_path / "work"
    shipped.mkdir()
    notebook = json.loads((REPO / "notebooks" / FIRST_SHIPPED).read_text("utf-8"))
    on_colab = {**notebook["cells"][1], "metadata": {"tags": ["colab"]}, "source": ["%pip"]}
    notebook["cells"].insert(1, on_colab)
    (shipped / FIRST_SHIPPED).write_text(json.dumps(notebook), "utf-8")
    hand_out(shipped, work)
    copy = json.loads((work / FIRST_SHIPPED).read_text("utf-8"))
    assert "%pip" not in json.dumps(copy)
    assert len(copy["cells"]) == len(notebook["cells"]) - 1
    assert hand_out(shipped, work) == HandedOut((), (), ())
