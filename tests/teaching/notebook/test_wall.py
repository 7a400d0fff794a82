"""What a notebook sends to a wall, when, and that it never waits."""

import multiprocessing
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ipywidgets as widgets
import pytest

import course_utils as cu
from course_utils.teaching.exercise import Verdict, exercise, expect, right
from course_utils.teaching.notebook import wall as module
from course_utils.teaching.notebook.wall import Wall, announce, connect, join, joined, request, send
from keepfed.errors import KeepfedError
from tests.stories.wall.fake import FakeWall, running_fake, until


@exercise("99.8", title="Say four")
def _four(answer: int) -> Verdict:
    expect(answer == 4, f"{answer} is not `four`. It is something else.", "Count again.")
    return right("Four.")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("COURSE_HOME", str(tmp_path))
    monkeypatch.delenv("COURSE_WALL", raising=False)
    monkeypatch.setattr(module, "_sender", None)
    yield tmp_path
    if module._sender:  # its thread must not post to the wall of the next test
        module._sender.posts.clear()
    module._button.cache_clear()
    widgets.Widget.close_all()


@pytest.fixture
def wall() -> Iterator[FakeWall]:
    with running_fake() as wall:
        yield wall


def guess(key: str, text: str) -> None:
    row: Any = cu.predict(key, "How much?", unit="%").children[1]
    row.children[0].value = text


def test_joined_wall_is_stored_with_a_random_seat_until_the_learner_leaves(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert joined() is None
    join("10.0.0.7:8765/wall?token=kqmz4h7p")
    first = joined()
    assert first[:2] == ("http://10.0.0.7:8765", "kqmz4h7p")
    assert re.fullmatch(r"[a-z2-9]{6}", first.seat)
    if sys.platform != "win32":
        assert (home / "wall.json").stat().st_mode & 0o777 == 0o600
    join("https://hub.example/services/wall/?token=t")
    assert joined() == Wall("https://hub.example/services/wall", "t", first.seat)
    monkeypatch.setenv("COURSE_WALL", "http://10.0.0.8:1/?token=abc")  # of a hub
    join("")
    assert joined() is None
    (home / "wall.json").write_text('{"seat": 3, "address": "')  # damaged
    hub = joined()
    assert hub == joined() == Wall("http://10.0.0.8:1", "abc", hub.seat if hub else "")
    monkeypatch.setenv("COURSE_WALL", "nonsense")
    connect("02")
    announce()
    assert module._sender is None
    for address in ("10.0.0.7", "ftp://10.0.0.7/?token=a", "http://?token=a", "http://[1?token=a"):
        with pytest.raises(KeepfedError, match="is not the address of a wall"):
            join(address)


def test_notebook_sends_guesses_measurements_verdicts_and_the_button(
    scratch: Path, wall: FakeWall, capsys: pytest.CaptureFixture[str]
) -> None:
    guess("02a", "40")  # nothing is sent before joining
    announce()
    connect("02", f"{wall.address}/?token=t")
    assert wall.get() == ("at", "", "02")
    guess("02a", "41 %")
    assert wall.get() == ("guess", "02a", 41)
    cu.predict("02a", "How much?", unit="%")  # Run All: nothing new
    guess("02a", "much")
    cu.reveal("02b", float("nan"))
    cu.reveal("02a", 19)
    assert wall.get() == ("measured", "02a", 19)
    module._button().value = True
    assert wall.get() == ("hand", "", True)
    assert module._button().description == "I can continue"
    announce()
    joining, *_, button = capsys.readouterr().out.splitlines()
    assert "as seat" in joining
    assert "I am stuck" not in button
    until(lambda: not module._sender.posts)
    connect("02", "")
    guess("02a", "42")
    announce()
    assert capsys.readouterr().out == "You have left the wall. Your notebooks send nothing.\n"
    assert wall.posts.empty()


def test_failure_of_the_wall_is_reported(wall: FakeWall, capsys: pytest.CaptureFixture) -> None:
    for status, said in ((401, "does not accept your token"), (500, "does not answer")):
        wall.status = status
        connect("02", f"{wall.address}/?token=t")
        announce()
        assert said in capsys.readouterr().out


def test_verdict_for_the_class_contains_no_values_or_code_of_the_learner() -> None:
    def fail() -> None:
        raise ValueError("my secret")

    @exercise("99.7", title="Fail")
    def _fail(answer: Any) -> Verdict:
        answer()
        return right("")

    assert [cu.check("99.8", answer).summary_for_class for answer in (..., 4, 5)] == [
        {"status": "todo", "slip": ""},
        {"status": "right", "slip": ""},
        {"status": "wrong", "slip": "… is not …"},
    ]
    slip = {"status": "wrong", "slip": "An error in the code"}
    assert cu.check("99.7", fail).summary_for_class == slip


def test_posts_are_repeated_until_the_wall_takes_or_rejects_them(
    wall: FakeWall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_FIRST_PAUSE_S", 0.01)
    wall.status = 500
    connect("02", f"{wall.address}/?token=t")
    wall.get()
    send("guess", "02a", 1)
    assert [wall.get()[2] for _ in range(3)] == [1, 1, 1]
    send("guess", "02a", 2)  # replaces it
    until(lambda: wall.get()[2] == 2)
    wall.status = 400  # rejected posts are lost
    until(lambda: not module._sender.posts)


def test_notebook_does_not_wait_and_sends_only_the_newest_values(wall: FakeWall) -> None:
    join(f"{wall.address}/?token=t")
    wall.answer_now.clear()
    connect("02")
    wall.get()  # the wall has it, and does not answer
    for number in range(1000):
        send("guess", "02a", number)
    wall.answer_now.set()
    until(lambda: wall.get() == ("guess", "02a", 999))


def send_as_worker() -> None:
    send("guess", "02a", 1)


def test_workers_never_post(wall: FakeWall, start_method: str) -> None:
    join(f"{wall.address}/?token=t")
    connect("02")
    wall.get()
    with module._sender._lock:  # a fork copies a lock that is held
        process = multiprocessing.get_context(start_method).Process(target=send_as_worker)
        process.start()
        process.join(60)
    assert process.exitcode == 0
    assert wall.posts.empty()


def test_request_uses_no_redirect_or_proxy(wall: FakeWall, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    wall.status = 302
    assert request(Wall(wall.address, "t", "abcd"), "at", "", "02", 10)[0] == 302
    post = {"seat": "abcd", "kind": "at", "about": "", "value": "02", "header": "Bearer t"}
    assert wall.posts.get() == post
    assert wall.posts.empty()
    for address in ("http://127.0.0.1:1", "http://127.0.0.1:none", "http://no.such.host.invalid"):
        assert request(Wall(address, "t", "abcd"), "at", "", "02", 10)[0] == 0
