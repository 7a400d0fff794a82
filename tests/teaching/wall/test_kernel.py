"""What a notebook sends, when, and that it never waits."""

import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest

import course_utils as cu
from course_utils.teaching.exercise import exercise, expect, right
from course_utils.teaching.wall import announce, connect, join, kernel, leave, send
from tests.notebooks.kernel import running_kernel
from tests.teaching.wall.helpers import FakeWall, until


@exercise("99.8", title="Say four")
def _four(answer: int) -> Any:
    expect(answer == 4, f"{answer} is not four, it is something else.", "Count again.")
    return right("Four.")


def guess(key: str, text: str) -> None:
    row: Any = cu.predict(key, "How much?", unit="%").children[1]
    row.children[0].value = text


def test_notebook_sends_guess_measurement_result_and_hand(scratch: Path, wall: FakeWall) -> None:
    join(wall.address, "t")
    connect("02")
    assert wall.get() == {"kind": "hand", "up": False}
    assert wall.get() == {"kind": "at", "notebook": "02"}
    guess("02a", "40 %")
    assert wall.get() == {"kind": "guess", "key": "02a", "value": 40}
    cu.predict("02a", "How much?", unit="%")  # Run All: nothing new
    guess("02a", "much")
    cu.reveal("02a", 19)
    assert wall.get() == {"kind": "measured", "key": "02a", "value": 19}
    cu.reveal("02b", float("nan"))
    for answer, status in ((..., "todo"), (4, "right"), (5, "wrong")):
        cu.check("99.8", answer)
        sent = {"kind": "verdict", "exercise": "99.8", "status": status, "misconception": ""}
        assert wall.get() == sent
    kernel._button().value = True
    assert wall.get() == {"kind": "hand", "up": True}
    assert kernel._button().description == "I can continue"
    connect("03")
    assert wall.get() == {"kind": "at", "notebook": "03"}
    assert wall.posts.empty()


def test_wrong_answer_sends_its_place_and_not_its_message(scratch: Path, wall: FakeWall) -> None:
    join(wall.address, "t")
    connect("02")
    cu.check("02.4", 2160.0, 2_821.0, 5.0)  # the complete bill
    posts = [wall.get() for _ in range(3)]
    name, _, line = posts[-1].pop("misconception").partition(":")
    assert posts[-1] == {"kind": "verdict", "exercise": "02.4", "status": "wrong"}
    assert name == "nb02/ex4_count_the_cost"
    assert line.isdigit()


def test_nothing_is_sent_without_joining(scratch: Path, wall: FakeWall, capsys: Any) -> None:
    connect("02")
    guess("02a", "40")
    announce()
    join(wall.address, "t")
    connect("02")
    assert [wall.get()["kind"], wall.get()["kind"]] == ["hand", "at"]
    leave()
    guess("02a", "41")
    announce()
    assert capsys.readouterr().out == ""
    sender = kernel._sender
    assert sender is not None
    until(lambda: not sender._posts)
    assert wall.posts.empty()


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (204, "as seat"),
        (None, "as seat"),
        (0, "The wall does not answer. Your notebook works without it.\n"),
        (403, "The wall does not accept your token"),
    ],
)
def test_ready_says_what_is_sent(
    status: int | None, said: str, wall: FakeWall, capsys: pytest.CaptureFixture[str]
) -> None:
    join(wall.address, "t")
    connect("02")
    sender = kernel._sender
    assert sender is not None
    until(lambda: sender.status == 204)
    sender.status = status
    announce()
    first, *_, button = capsys.readouterr().out.splitlines()
    assert said.strip() in first
    assert "I am stuck" in button


def test_wall_variable_that_is_wrong_raises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COURSE_WALL", "nonsense")
    connect("02")
    announce()
    assert kernel._sender is None


def send_as_worker() -> None:
    assert os.getpid() != (kernel._sender.pid if kernel._sender else 0)
    send("guess", "02a", key="02a", value=1)
    connect_is_none = kernel._sender is None
    os._exit(0 if connect_is_none or kernel._sender.pid != os.getpid() else 1)  # type: ignore[union-attr]


def test_workers_never_post(wall: FakeWall, start_method: str) -> None:
    join(wall.address, "t")
    connect("02")
    assert [wall.get()["kind"], wall.get()["kind"]] == ["hand", "at"]
    sender = kernel._sender
    assert sender is not None
    with sender._filled:  # a fork copies a lock that is held
        process = multiprocessing.get_context(start_method).Process(target=send_as_worker)
        process.start()
        process.join(60)
    assert process.exitcode == 0
    assert wall.posts.empty()


def test_post_returns_while_a_request_is_open(wall: FakeWall) -> None:
    join(wall.address, "t")
    wall.answer_now.clear()
    connect("02")
    wall.get()  # the wall has it, and does not answer
    sender = kernel._sender
    assert sender is not None
    for number in range(1000):
        send("guess", "02a", key="02a", value=number)
    assert sender.status is None  # the first try is still open


BEGIN = """
import course_utils as cu
from course_utils.teaching.notebook import start
start.data_path = lambda name: None
cu.ready("90")
"""
LOAD = """
from torch.utils.data import DataLoader
print([one.tolist() for one in DataLoader(range(4), batch_size=2, num_workers=1, timeout=60)])
"""


@pytest.mark.slow
def test_real_kernel_works_with_wall_that_never_answers(
    wall: FakeWall, home: Path, start_method: str
) -> None:
    wall.answer_now.clear()
    settings = {
        "COURSE_HOME": str(home),
        "COURSE_WALL": f"{wall.address}/?token=t",
        "COURSE_START_METHOD": start_method,
    }
    with running_kernel(home, **settings) as kernel:
        for _ in range(2):  # Run All twice
            assert "Accelerator: " in kernel.run(BEGIN)
            assert kernel.run(LOAD) == "[[0, 1], [2, 3]]\n"
            form = 'form = cu.predict("02a", "How much?", unit="%")\n'
            assert kernel.run(f'{form}form.children[1].children[0].value = "40"') == ""
            assert "You predicted 40 %" in kernel.run('cu.reveal("02a", 19)')
            assert "Not right yet" in kernel.run('cu.check("02.4", 1.0, 2.0, 3.0)')
    assert {wall.get()["kind"] for _ in range(wall.posts.qsize())} == {"hand"}
