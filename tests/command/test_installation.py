import importlib.metadata
import sys
from unittest.mock import Mock

import pytest

from course_utils import paths
from course_utils.command import installation
from course_utils.teaching.notebook import DATA_SETS, data_path
from data_scripts.files import seal


@pytest.mark.slow
def test_this_installation_can_run_the_course():
    for name in DATA_SETS:
        data_path(name, "S")
    assert [str(found) for found in installation.findings() if found.is_wrong] == []


def test_each_part_that_is_wrong_is_named_with_the_next_step_and_hides_no_other(
    monkeypatch, tmp_path
):
    version = importlib.metadata.version

    def without_h5py(package):
        if package == "h5py":
            raise importlib.metadata.PackageNotFoundError(package)
        return version(package)

    dies = Mock(side_effect=OSError("no shared memory\nsecond line"))
    monkeypatch.setattr(paths, "REPO", tmp_path)
    monkeypatch.delenv("COURSE_DATA", raising=False)
    monkeypatch.setattr(importlib.metadata, "version", without_h5py)
    monkeypatch.setattr(sys, "version_info", (3, 10, 4, "final", 0))
    monkeypatch.setattr(installation, "_worker", dies)
    for part in ("imports", "widget"):
        monkeypatch.setattr(installation, f"_{part}", lambda: "fine")
    found = {each.part: each for each in installation.findings()}
    wrong = [part for part in found if found[part].is_wrong]
    assert wrong == ["python", "packages", "data", "worker"]
    assert found["python"].next_step == "use Python 3.11 to 3.14"
    assert all(text in str(found["packages"]) for text in ("wrong", "h5py", "pip install -e"))
    assert found["worker"].seen == "OSError: no shared memory"
    assert [*tmp_path.iterdir()] == []  # nothing was made


def test_data_are_used_in_the_size_that_exists_and_half_of_them_is_wrong(monkeypatch, tmp_path):
    monkeypatch.setenv("COURSE_DATA", str(tmp_path))
    monkeypatch.delenv("COURSE_SIZE")
    assert paths.data_size() == "M"
    for name in DATA_SETS:
        with pytest.raises(installation._WrongError, match=f"incomplete: .*{name}-[SM]"):
            installation._data()
        for size in "SM" if name == "images" else "S":
            folder = tmp_path / f"{name}-{size}"
            folder.mkdir()
            (folder / "data").write_bytes(b"1")
            seal(folder, {"data": name, "size": size, "seed": 0})
        assert paths.data_size() == "S"
        assert data_path(name) == tmp_path / f"{name}-S"
    assert installation._data() == "all of size S are complete"
    (tmp_path / "images-S" / "data").write_bytes(b"")
    with pytest.raises(installation._WrongError, match=r"incomplete: images-S$"):
        installation._data()


@pytest.mark.slow
def test_a_place_for_data_that_cannot_be_is_named_with_its_variable(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("COURSE_DATA", str(tmp_path / "file"))
    found = {each.part: each for each in installation.findings()}["folders"]
    assert "file is not writable" in found.seen
    assert found.next_step == "set COURSE_DATA to a writable folder, or unset it"
