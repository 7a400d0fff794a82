"""The queue of posts: bounded, repeated, silent after failures, and never in the way."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Queue
from typing import Any

import pytest

from course_utils.teaching.wall import Sender, Wall, deliver, join, leave, sender
from tests.teaching.wall.helpers import FakeWall, running_wall, until


@contextmanager
def fake_sender(*statuses: int) -> Iterator[tuple[Sender, Callable[[], Any]]]:
    """Yield a sender whose tries get these statuses, and the queue of tries and pauses."""
    seen: Queue[Any] = Queue()
    answers = iter(statuses)

    def send(_: Wall, post: Any) -> int:
        seen.put(post.get("value"))
        return next(answers, 204)

    join("10.0.0.7", "t")
    yield (
        Sender(send, lambda seconds: seen.put(f"{seconds} s")),
        lambda: seen.get(timeout=30),
    )


def test_failed_tries_end_in_silence_and_continue() -> None:
    with fake_sender(0, 429, 0, 500, 0) as (queue, seen):
        queue.put("guess", "02a", {"value": 40})
        wanted = [40, "1 s", 40, "4 s", 40, "16 s", 40, "300 s", 40, "1 s", 40]
        assert [seen() for _ in wanted] == wanted


def test_wrong_token_leads_to_silence_at_once() -> None:
    with fake_sender(401, 403) as (queue, seen):
        queue.put("guess", "02a", {"value": 40})
        assert [seen() for _ in range(5)] == [40, "300 s", 40, "300 s", 40]


def test_rejected_post_and_failed_value_do_not_stop_others() -> None:
    def fail() -> None:
        raise SyntaxError

    with fake_sender(400) as (queue, seen):
        queue.put("guess", "02a", {"value": 1})
        queue.put("guess", "02b", {"value": fail})
        queue.put("guess", "02c", {"value": lambda: 3})
        assert [seen(), seen()] == [1, 3]


def test_full_queue_keeps_the_newest_values() -> None:
    entered, leave_now = threading.Event(), threading.Event()
    sent: list[int] = []

    def send(_: Wall, post: Any) -> int:
        sent.append(post["value"])
        entered.set()
        leave_now.wait(30)
        return 204

    join("10.0.0.7", "t")
    queue = Sender(send)
    queue.put("guess", "first", {"value": -1})
    assert entered.wait(30)
    for number in range(60):
        queue.put("guess", f"key {number}", {"value": number})
    queue.put("guess", "key 30", {"value": 300})
    queue.put("guess", "key 30", {"value": 301})
    leave_now.set()
    until(lambda: sent[-1] == 59)
    assert sent == [-1, *range(10, 30), 301, *range(31, 60)]


def test_value_that_changes_during_its_post_is_sent_again() -> None:
    sent: list[int] = []
    join("10.0.0.7", "t")

    def send(_: Wall, post: Any) -> int:
        sent.append(post["value"])
        if post["value"] == 1:
            queue.put("guess", "02a", {"value": 2})
        return 204

    queue = Sender(send)
    queue.put("guess", "02a", {"value": 1})
    until(lambda: sent == [1, 2])


def test_nothing_is_sent_after_leaving() -> None:
    with fake_sender(*[204] * 9) as (queue, seen):
        leave()
        queue.put("guess", "02a", {"value": 1})
        until(lambda: not queue._posts)
        join("10.0.0.7", "t")
        queue.put("guess", "02a", {"value": 2})
        assert seen() == 2


def test_waking_ends_the_silence(wall: FakeWall) -> None:
    join(wall.address, "t")
    wall.status = 401
    queue = Sender()
    queue.put("guess", "02a", {"value": 1})
    wall.get()
    until(lambda: queue.status == 401)
    wall.status = 204
    queue.wake()
    assert wall.get() == {"kind": "guess", "value": 1}
    until(lambda: queue.status == 204)


@pytest.mark.parametrize("status", [204, 400, 401, 413, 429, 500, 302])
def test_delivery_reports_the_status_and_follows_no_redirect(wall: FakeWall, status: int) -> None:
    wall.status = status
    assert deliver(Wall(wall.address, "t", "abcd"), {"kind": "at", "notebook": "02"}) == status
    assert wall.posts.get() == {
        "seat": "abcd",
        "kind": "at",
        "notebook": "02",
        "header": "Bearer t",
    }
    assert wall.posts.empty()


def test_delivery_uses_no_proxy(wall: FakeWall, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert deliver(Wall(wall.address, "t", "abcd"), {"kind": "at"}) == 204


def test_wall_that_is_down_or_silent_is_reported_as_0(
    wall: FakeWall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "_PATIENCE_S", 0.1)
    for address in ("http://127.0.0.1:1", "http://127.0.0.1:none", "http://no.such.host.invalid"):
        assert deliver(Wall(address, "t", "abcd"), {"kind": "at"}) == 0
    wall.answer_now.clear()
    assert deliver(Wall(wall.address, "t", "abcd"), {"kind": "at"}) == 0


def test_restarted_wall_gets_what_was_not_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "_PAUSES_S", (0.05, 0.05, 0.05))
    monkeypatch.setattr(sender, "_SILENCE_S", 0.05)
    with running_wall() as first:
        join(first.address, "t")
        queue = Sender()
        queue.put("guess", "02a", {"value": 1})
        assert first.get()["value"] == 1
        until(lambda: queue.status == 204)
    queue.put("guess", "02b", {"value": 2})
    until(lambda: queue.status == 0)
    with running_wall(first.server_port) as second:
        assert second.get()["value"] == 2
