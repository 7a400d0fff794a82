import importlib.metadata
import sys

import pytest

from course_utils import paths
from course_utils.command import installation


@pytest.mark.slow
def test_this_installation_can_run_the_course():
    assert [str(found) for found in installation.findings() if found.is_wrong] == []


def test_each_part_that_is_wrong_is_named_with_the_next_step_and_hides_no_other(
    monkeypatch, tmp_path
):
    version = importlib.metadata.version

    def without_h5py(package):
        if package == "h5py":
            raise importlib.metadata.PackageNotFoundError(package)
        return version(package)

    def dies():
        raise OSError("no shared memory\nsecond line")

    (tmp_path / "requirements.lock").write_text("# tested\nnumpy==0.1\npytest==0.1\n")
    monkeypatch.setattr(paths, "REPO", tmp_path)
    monkeypatch.setattr(importlib.metadata, "version", without_h5py)
    monkeypatch.setattr(sys, "version_info", (3, 10, 4, "final", 0))
    monkeypatch.setattr(installation, "_worker", dies)
    for part in ("imports", "widget"):
        monkeypatch.setattr(installation, f"_{part}", lambda: "fine")
    found = {each.part: each for each in installation.findings()}
    wrong = [part for part in found if found[part].is_wrong]
    assert wrong == ["python", "packages", "worker"]
    assert found["python"].next_step == "use Python 3.11 to 3.14"
    packages = str(found["packages"])
    assert packages.startswith("wrong")
    assert "h5py" in packages
    assert "pip install -e ." in packages
    assert found["worker"].seen == "OSError: no shared memory"
    assert "(tested: 0.1)" in found["versions"].seen  # which is no fault
    assert "pytest" not in found["versions"].seen
