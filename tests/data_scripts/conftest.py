"""A small set of events, made once."""

from pathlib import Path

import pytest

from data_scripts import make_events

SMALL = 600


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let size S be 600 events."""
    monkeypatch.setitem(make_events.COUNTS, "S", SMALL)


@pytest.fixture(scope="session")
def events_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with 600 events in the usual formats. Do not write into it."""
    folder = tmp_path_factory.mktemp("data") / "events"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(make_events.COUNTS, "S", SMALL)
        assert make_events.main(["--size", "S", "--out", str(folder)]) == 0
    return folder
