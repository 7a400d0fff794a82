"""The leaderboard file: names, their order, and rejected posts."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from course_utils.stories.leaderboard import Board, Result
from course_utils.stories.leaderboard import board as module
from course_utils.stories.leaderboard.limits import PostLimits
from keepfed.errors import KeepfedError
from tests.stories.leaderboard.helpers import GOOD, post_fields


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board(tmp_path / "work" / "leaderboard.json")


def names(board: Board) -> list[str]:
    return [entry.name for entry in board.entries()]


def test_board_ranks_by_points_then_au_then_start_up(board: Board) -> None:
    posts = [("C", {"points": 60}), ("B", {"start_up_s": 0.9}), ("A", {}), ("D", {"au": 0.92})]
    said = [board.take(post_fields(name, **changed)) for name, changed in posts]
    assert names(board) == ["D", "A", "B", "C"]
    places = ["1 of 1", "1 of 2", "1 of 3", "1 of 4"]
    assert [one.partition("place ")[2].partition(".")[0] for one in said] == places


def test_board_keeps_best_result_of_each_normalised_name(board: Board) -> None:
    board.take(post_fields("Marie  Curie", points=60))
    assert (
        board.take(post_fields(" marie curie ", points=90))
        == "marie curie: 90 points, place 1 of 1."
    )
    kept = "marie curie keeps 90 points, place 1 of 1. This result is not better."
    assert board.take(post_fields("MARIE CURIE", points=70)) == kept
    assert [(one.name, one.result.points) for one in board.entries()] == [("marie curie", 90)]


def test_results_of_each_seed_are_ranked_separately(board: Board) -> None:
    board.take(post_fields("A", seed=7))
    board.take(post_fields("A", points=20))
    assert "place 1 of 2." in board.take(post_fields("B", seed=7, points=90))
    assert [(e.result.seed, e.name) for e in board.entries()] == [(0, "A"), (7, "B"), (7, "A")]


def test_board_stores_only_names_and_results(board: Board) -> None:
    board.take(post_fields(user="curie", host="laptop-7", folder="curie/work"))
    (line,) = json.loads(board.path.read_text("utf-8"))["results"]
    assert line == {"name": "Marie", **GOOD.to_json()}
    assert json.loads(board.text())["results"] == [line]
    assert [path.name for path in board.path.parent.iterdir()] == ["leaderboard.json"]


@pytest.mark.parametrize("name", ["Ł. Müller-Đặng", "李", "José", "A-1", "<b>", "x" * 30])
def test_printable_names_are_accepted(board: Board, name: str) -> None:
    board.take(post_fields(name))
    assert names(board) == [name]


def test_full_board_rejects_new_names(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_NAMES", 2)
    for name in "AB":
        board.take(post_fields(name))
    with pytest.raises(ValueError, match="The board is full"):
        board.take(post_fields("C"))
    board.take(post_fields("B", points=90))
    assert names(board) == ["B", "A"]


def test_name_has_results_for_a_limited_number_of_seeds(board: Board) -> None:
    board.take(post_fields("A"))
    for seed in range(1, 20):
        board.take(post_fields("A", seed=seed))
    with pytest.raises(ValueError, match="at most 20 seeds"):
        board.take(post_fields("A", seed=20))
    board.take(post_fields("B", seed=20))


def test_address_may_post_a_limited_number_of_times_and_names() -> None:
    now = [0.0]
    limits = PostLimits(clock=lambda: now[0])
    assert not any(limits.refusal("one", f"Name {n}") for n in range(100))
    assert "Wait a minute" in limits.refusal("one", "Name 0")
    assert limits.refusal("other", "Name 0") == ""
    now[0] = 61
    assert "has posted 100 names" in limits.refusal("one", "Somebody else")
    assert limits.refusal("one", "NAME 7") == ""


@pytest.mark.parametrize("text", ["", "{", "[]", '{"results": 7}', '{"results": [{"name": "A"}]}'])
def test_damaged_file_raises_error_and_is_not_changed(tmp_path: Path, text: str) -> None:
    path = tmp_path / "leaderboard.json"
    path.write_text(text, "utf-8")
    with pytest.raises(
        KeepfedError, match=r"leaderboard\.json is not a leaderboard, or it is damaged"
    ):
        Board(path)
    assert path.read_text("utf-8") == text


@pytest.mark.parametrize("name", "ABC")
def test_deleting_a_line_removes_the_name(board: Board, name: str) -> None:
    for each in "ABC":
        board.take(post_fields(each))
    lines = board.path.read_text("utf-8").splitlines()
    left = [line for line in lines if f'"{name}"' not in line]
    board.path.write_text("\n".join(left), "utf-8")
    assert names(board) == sorted({*"ABC"} - {name})
    assert "place 3 of 3." in board.take(post_fields("D,]"))
    assert names(board)[-1] == "D,]"


def test_rescued_requires_accepted_result_and_target_au() -> None:
    assert GOOD.rescued
    assert replace(GOOD, au=0.846).rescued  # printed as 85 %
    assert not replace(GOOD, au=0.844).rescued
    assert not replace(GOOD, refused="Each event came twice.").rescued
    assert Result.from_json(GOOD.to_json()) == GOOD
