"""The picture of a question: its scale, its dots and its sentence."""

import math
import random
import re

import pytest

from course_utils.paths import REPO
from course_utils.stories.wall.picture import draw, scale_for
from course_utils.stories.wall.questions import deck_question, read_course
from tests.stories.wall.helpers import COURSE

SHARE, TIMES, CHOICE, READS = COURSE.questions.values()


def test_percentages_have_the_scale_to_100() -> None:
    shown = draw(SHARE, [0, 50, 100, 40, 60], [])
    assert shown["dots"] == [0, 0.4, 0.5, 0.6, 1]
    assert [label for _, label in shown["ticks"]] == ["0", "20", "40", "60", "80", "100"]
    assert shown["rings"] == [0, 4]
    assert shown["sentence"] == "The median guess is 50 %."
    assert shown["marks"] == []


def test_measured_values_are_marked_with_their_median() -> None:
    shown = draw(SHARE, [40], [17, 19, 24])
    assert shown["marks"] == [0.17, 0.19, 0.24]
    assert shown["median"] == 0.19
    assert shown["sentence"] == "Measured: 19 %, mostly 17 to 24."


def test_times_with_a_large_spread_have_decades() -> None:
    shown = draw(TIMES, [2, 3, 30, 400], [])
    assert shown["log"]
    assert [label for _, label in shown["ticks"]] == ["1", "10", "100", "1,000"]
    assert not draw(TIMES, [2, 3, 5], [])["log"]


def test_extreme_values_stay_at_the_edge() -> None:
    shown = draw(READS, [*range(10, 50), 1e15, -500], [])
    assert shown["dots"][0] == 0
    assert shown["dots"][-1] == 1
    assert shown["sentence"].endswith("Not on the scale: 2.")
    assert len(shown["ticks"]) <= 7


def test_one_client_cannot_squeeze_the_picture() -> None:
    for guesses, measured in (([*range(10, 20), 1e15], []), ([10, 20], [*range(10, 20), 1e15])):
        shown = draw(READS, guesses, measured)
        assert not shown["log"]
        assert float(shown["ticks"][-1][1]) < 100


def test_scale_stays_logarithmic_when_uncovered() -> None:
    guesses, measured = [2, 3, 30, 400], [19.0] * 60
    assert draw(TIMES, guesses, measured)["log"]
    assert draw(TIMES, guesses, measured)["ticks"] == draw(TIMES, guesses, [])["ticks"]


def test_choices_are_counted() -> None:
    shown = draw(CHOICE, ["it waits", "it waits", "an error"], ["an error"])
    assert shown["bars"] == [["it waits", 2, 0], ["an error", 1, 1]]
    assert shown["sentence"] == "Measured: an error."


@pytest.mark.parametrize("unit", ["%", "times", "MB"])
def test_any_numbers_have_a_picture(unit: str) -> None:
    draws = random.Random(0)
    for count in (1, 2, 5, 60):
        for spread in (0, 0.1, 3, 30):
            values = [draws.lognormvariate(0, spread) for _ in range(count)]
            some = [0.0, *values] if draws.random() < 0.3 else values
            some = [-value for value in some] if draws.random() < 0.2 else some
            scale = scale_for(some, unit)
            assert 2 <= len(scale.ticks()) <= 9, (some, scale)
            assert all(0 <= scale.at(value) <= 1 for value in some)
            shown = draw(TIMES._replace(unit=unit), some, some)
            assert all(map(math.isfinite, shown["dots"]))


def test_wall_knows_all_questions_of_the_notebooks() -> None:
    course = read_course()
    cells = "".join(path.read_text("utf-8") for path in (REPO / "notebooks").glob("*.ipynb"))
    own = {key for key in course.questions if "-" not in key}
    asked = set(re.findall(r'cu\.predict\((?:\\n",\s*"\s*)?\\"(\w+)\\"', cells))
    assert own == asked
    assert len(own) > 80
    assert course.questions["02a"].unit == "%"
    assert "a larger model" in course.questions["02f"].choices
    assert course.questions["09a"].choices[0] == "none"
    for question in course.questions.values():
        assert question.text
        assert len(question.choices) != 1, question
    assert course.notebooks["02"] == "See the GPU wait"
    assert "02.1" in course.exercises
    places = [place for place in course.mistakes if place.startswith("nb01/ex1_pad_events:")]
    assert places


def test_decks_ask_questions_in_blocks() -> None:
    question = deck_question("fast-3", ["How many", "times?", "unit: times"])
    assert question == ("fast-3", "How many times?", "times", ())
    assert deck_question("a-1", ["A?", "choices: yes | no"]).choices == ("yes", "no")
    for key, lines in (("Fast 3", ["A?"]), ("fast-3", []), ("fast", ["A?"])):
        with pytest.raises(ValueError, match="needs a key"):
            deck_question(key, lines)
