import importlib.metadata
import sys
from pathlib import Path

import pytest

from course_utils import paths
from course_utils.command import installation
from course_utils.command.installation import Finding


def finding(part: str) -> Finding:
    return next(found for found in installation.findings() if found.part == part)


@pytest.mark.slow
def test_this_installation_can_run_the_course() -> None:
    assert [str(found) for found in installation.findings() if found.is_wrong] == []


def test_a_missing_package_is_named_with_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    version = importlib.metadata.version

    def without_h5py(package: str) -> str:
        if package == "h5py":
            raise importlib.metadata.PackageNotFoundError(package)
        return version(package)

    monkeypatch.setattr(importlib.metadata, "version", without_h5py)
    found = str(finding("packages"))
    assert found.startswith("wrong")
    assert "h5py" in found
    assert "pip install -e ." in found


def test_a_version_other_than_tested_is_said_and_not_wrong(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "requirements.lock").write_text("# tested\nnumpy==0.1\npytest==0.1\n")
    monkeypatch.setattr(paths, "REPO", tmp_path)
    found = finding("versions")
    assert not found.is_wrong
    assert "(tested: 0.1)" in found.seen
    assert "pytest" not in found.seen


def test_an_unforeseen_error_is_a_finding_and_does_not_hide_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def dies() -> str:
        raise OSError("no shared memory\nsecond line")

    for part in ("imports", "widget"):
        monkeypatch.setattr(installation, f"_{part}", lambda: "fine")
    monkeypatch.setattr(installation, "_worker", dies)
    monkeypatch.setattr(paths, "REPO", tmp_path)
    found = {each.part: each for each in installation.findings()}
    assert found["worker"].is_wrong
    assert found["worker"].seen == "OSError: no shared memory"
    assert found["versions"].is_wrong  # there is no lock file here
    assert not found["folders"].is_wrong


def test_a_python_that_is_too_old_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 4, "final", 0))
    found = finding("python")
    assert found.is_wrong
    assert found.next_step == "use Python 3.11 to 3.14"
