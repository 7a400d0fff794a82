from collections.abc import Sequence
from pathlib import Path

import pytest

from course_utils import paths
from course_utils.errors import CourseError
from course_utils.teaching.notebook import data_path


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Sequence[str]]:
    """Stand in for the script of the events, in a data folder of its own; list its calls."""
    calls: list[Sequence[str]] = []

    def main(argv: Sequence[str]) -> int:
        calls.append(argv)
        folder = Path(argv[argv.index("--out") + 1])
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text("{}")
        return 0

    monkeypatch.setenv("COURSE_DATA", str(tmp_path))
    monkeypatch.setattr("data_scripts.make_events.main", main)
    return calls


def test_data_lie_in_the_project_unless_the_environment_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("COURSE_DATA", raising=False)
    assert paths.data_root() == paths.REPO / "data"
    monkeypatch.setenv("COURSE_DATA", str(tmp_path))
    assert paths.data_root() == tmp_path


def test_the_size_is_m_unless_the_environment_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("COURSE_SIZE")
    assert paths.size() == "M"
    monkeypatch.setenv("COURSE_SIZE", "l")
    assert paths.size() == "L"


def test_an_unknown_size_is_refused_with_the_sizes_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COURSE_SIZE", "XL")
    with pytest.raises(CourseError, match="choose S, M or L"):
        paths.size()


def test_an_unknown_data_set_is_refused_with_the_ones_there_are() -> None:
    with pytest.raises(CourseError, match="choose one of events, images, volumes"):
        data_path("event")


def test_absent_data_are_made_once(made: list[Sequence[str]], tmp_path: Path) -> None:
    folder = data_path("events", "S")
    assert folder == data_path("events", "S") == tmp_path / "events-S"
    assert made == [["--size", "S", "--out", str(folder)]]


def test_data_without_a_manifest_are_not_taken_for_whole(
    made: list[Sequence[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "events-S").mkdir()
    monkeypatch.setattr("data_scripts.make_events.main", lambda argv: 1)
    with pytest.raises(CourseError, match=r"could not be made.*course data"):
        data_path("events", "S")


def test_a_recording_is_found_from_any_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert paths.recording("dlio_unet3d.pfw.gz").is_file()


def test_an_unknown_recording_is_refused_with_those_there_are() -> None:
    with pytest.raises(CourseError, match=r"no recording 'dlio'; choose one of: .*dlio_unet3d"):
        paths.recording("dlio")
