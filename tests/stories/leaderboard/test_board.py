"""The board of a class: who is on it, in which order, and what it refuses."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from course_stories.leaderboard import Board, Result
from course_stories.leaderboard import board as module
from keepfed.errors import KeepfedError
from tests.stories.leaderboard.posted import GOOD, sent


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board(tmp_path / "work" / "leaderboard.json")


def names(board: Board) -> list[str]:
    return [entry.name for entry in board.entries()]


def test_the_best_come_first_by_points_then_au_then_an_early_first_step(board: Board) -> None:
    posts = [("C", {"points": 60}), ("B", {"start_up_s": 0.9}), ("A", {}), ("D", {"au": 0.92})]
    said = [board.take(sent(name, **changed)) for name, changed in posts]
    assert names(board) == ["D", "A", "B", "C"]
    places = ["1 of 1", "1 of 2", "1 of 3", "1 of 4"]
    assert [one.rpartition("place ")[2] for one in said] == [f"{place}." for place in places]


def test_of_equals_the_first_stays_before_the_second(board: Board) -> None:
    for name in ("Z", "A"):
        board.take(sent(name))
    assert names(board) == ["Z", "A"]


def test_a_name_has_its_best_result_however_it_is_spelled(board: Board) -> None:
    board.take(sent("Marie  Curie", points=60))
    assert board.take(sent(" marie curie ", points=90)) == "marie curie: 90 points, place 1 of 1."
    kept = "marie curie keeps 90 points, place 1 of 1: this was no better."
    assert board.take(sent("MARIE CURIE", points=70)) == kept
    assert [(one.name, one.result.points) for one in board.entries()] == [("marie curie", 90)]


def test_results_of_another_seed_stand_apart(board: Board) -> None:
    board.take(sent("A", seed=7))
    board.take(sent("A", points=20))
    assert board.take(sent("B", seed=7, points=90)).endswith("place 1 of 2.")
    assert [(e.result.seed, e.name) for e in board.entries()] == [(0, "A"), (7, "B"), (7, "A")]


def test_names_and_results_are_kept_and_nothing_else(board: Board) -> None:
    board.take(sent(user="curie", host="laptop-7", folder="curie/work"))
    (line,) = json.loads(board.path.read_text("utf-8"))["results"]
    assert line == {"name": "Marie", **GOOD.to_json()}
    assert [path.name for path in board.path.parent.iterdir()] == ["leaderboard.json"]


@pytest.mark.parametrize("name", ["Ł. Müller-Đặng", "李", "José", "A-1", "<b>", "x" * 30])
def test_a_name_may_be_any_that_can_be_read(board: Board, name: str) -> None:
    board.take(sent(name))
    assert names(board) == [name]


HIDDEN = ["a\u202eb", "a\u200bb", "a\x00b", "a\x1b[31mb", "\ud800", "\ue000"]


@pytest.mark.parametrize("name", [None, 7, ["A"], "", "  ", "x" * 31, "...", "🔥", *HIDDEN])
def test_what_is_no_name_is_refused_in_a_sentence(board: Board, name: Any) -> None:
    with pytest.raises(ValueError, match=r"(needs a name|A name has).*; choose (one|another)\.$"):
        board.take(sent(name))
    assert not board.path.exists()


WRONG = [
    ({"au": float("nan")}, "'au' is nan, which cannot be."),
    ({"au": 1.2}, "'au' is 1.2, which cannot be."),
    ({"au": True}, "'au' is True, which is no float."),
    ({"points": 101}, "'points' is 101, which cannot be."),
    ({"points": 85.5}, "'points' is 85.5, which is no int."),
    ({"held": -1}, "'held' is -1, which cannot be."),
    ({"samples": 10**400}, "which cannot be."),
    ({"start_up_s": 10**400}, "which cannot be."),
    ({"start_up_s": float("inf")}, "'start_up_s' is inf, which cannot be."),
    ({"seed": "0"}, "'seed' is '0', which is no int."),
    ({"when": "yesterday"}, "'when' is 'yesterday', which is no time."),
    ({"when": "<script>alert(1)</script>"}, "which is no time."),
    ({"refused": "Each event came twice."}, "Refused, so not on the board: Each event came twice."),
]


@pytest.mark.parametrize(("changed", "said"), WRONG, ids=[said for _, said in WRONG])
def test_what_is_no_result_is_refused_in_a_sentence(
    board: Board, changed: dict[str, Any], said: str
) -> None:
    board.take(sent("Pierre"))
    before = board.path.read_bytes()
    with pytest.raises(ValueError, match=r"\.$") as refused:
        board.take(sent(**changed))
    assert said in str(refused.value)
    assert board.path.read_bytes() == before


@pytest.mark.parametrize("field", GOOD.to_json())
def test_a_result_without_one_of_its_fields_is_none(board: Board, field: str) -> None:
    whole = sent()
    del whole[field]
    with pytest.raises(ValueError, match=f"The result has no '{field}'; send all of its fields"):
        board.take(whole)


@pytest.mark.parametrize("given", [None, [], "Marie", 7, {}])
def test_what_is_no_object_is_refused(board: Board, given: object) -> None:
    with pytest.raises(ValueError, match="send"):
        board.take(given)


def test_a_board_has_an_end(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_NAMES", 2)
    for name in "AB":
        board.take(sent(name))
    with pytest.raises(ValueError, match="The board is full: it has 2 lines"):
        board.take(sent("C"))
    board.take(sent("B", points=90))
    assert names(board) == ["B", "A"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"results": 7}', '{"results": [{"name": "A"}]}'])
def test_a_damaged_file_is_named_and_stays_as_it_is(tmp_path: Path, text: str) -> None:
    path = tmp_path / "leaderboard.json"
    path.write_text(text, "utf-8")
    with pytest.raises(KeepfedError, match=r"leaderboard\.json is no board, or damaged; mend it"):
        Board(path)
    assert path.read_text("utf-8") == text


@pytest.mark.parametrize("name", "ABC")
def test_a_name_is_taken_off_by_taking_its_line_out_of_the_file(board: Board, name: str) -> None:
    for each in "ABC":
        board.take(sent(each))
    lines = board.path.read_text("utf-8").splitlines()
    left = [line for line in lines if f'"{name}"' not in line]
    board.path.write_text("\n".join(left), "utf-8")
    assert names(board) == sorted({*"ABC"} - {name})
    assert board.take(sent("D,]")).endswith("place 3 of 3.")
    assert names(board)[-1] == "D,]"


def test_a_disk_that_is_full_leaves_the_board_as_it_was(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    board.take(sent("A"))
    before = board.path.read_bytes()

    def full(path: Path, content: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "replace_file", full)
    with pytest.raises(OSError, match="No space"):
        board.take(sent("B"))
    assert board.path.read_bytes() == before


def test_a_result_is_rescued_with_the_right_samples_and_a_busy_gpu_alone() -> None:
    assert GOOD.rescued
    assert not replace(GOOD, au=0.89).rescued
    assert not replace(GOOD, refused="Each event came twice.").rescued
    assert Result.from_json(GOOD.to_json()) == GOOD
