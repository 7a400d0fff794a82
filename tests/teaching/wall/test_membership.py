"""Join a wall and leave it, by command or by the environment of a hub."""

import re
import sys
from pathlib import Path

import pytest

from course_utils.command import cli
from course_utils.teaching.wall import Wall, join, joined, leave
from keepfed.errors import KeepfedError
from tests.teaching.wall.helpers import FakeWall


def test_join_is_stored_with_a_stable_random_seat(home: Path) -> None:
    assert joined() is None
    wall = join("10.0.0.7:8765/", "kqmz4h7p")
    assert wall == joined() == Wall("http://10.0.0.7:8765", "kqmz4h7p", wall.seat)
    assert re.fullmatch(r"[a-z2-9]{6}", wall.seat)
    assert join("https://hub.example/services/wall", "t") == Wall(
        "https://hub.example/services/wall", "t", wall.seat
    )
    if sys.platform != "win32":
        assert (home / "wall.json").stat().st_mode & 0o777 == 0o600
    leave()
    assert joined() is None
    assert join("10.0.0.7:8765", "t").seat == wall.seat


def test_hub_wall_applies_unless_learner_chose(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COURSE_WALL", "http://10.0.0.8:1/?token=abc")
    wall = joined()
    assert wall == joined() == Wall("http://10.0.0.8:1", "abc", wall.seat if wall else "")
    join("10.0.0.7:8765", "t")
    assert joined() != wall
    leave()
    assert joined() is None
    (home / "wall.json").write_text('{"seat": 3, "address": "')  # damaged
    assert joined() is not None
    monkeypatch.setenv("COURSE_WALL", "http://10.0.0.8:1/")
    with pytest.raises(KeepfedError, match="token of the wall is missing"):
        joined()


@pytest.mark.parametrize("address", ["", "ftp://10.0.0.7", "http://", "http://[10.0.0.7"])
def test_invalid_address_is_reported(address: str) -> None:
    with pytest.raises(KeepfedError, match="is not the address of a wall"):
        join(address, "t")


def test_course_join_reports_whether_the_wall_answers(
    wall: FakeWall, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["join"]) == 0
    assert "You have not joined a wall." in capsys.readouterr().out
    assert cli.main(["join", wall.address, "secret"]) == 0
    assert "It answers." in capsys.readouterr().out
    assert wall.posts.get()["header"] == "Bearer secret"
    wall.status = 401
    assert cli.main(["join"]) == 1
    assert "It does not accept the token." in capsys.readouterr().out
    assert cli.main(["join", "127.0.0.1:1", "secret"]) == 1
    assert "It does not answer." in " ".join(capsys.readouterr().out.split())
    assert cli.main(["join", "--off"]) == 0
    assert joined() is None
