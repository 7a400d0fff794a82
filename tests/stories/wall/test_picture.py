import math
import random
import re
from itertools import product

from course_utils.paths import REPO
from course_utils.stories.wall.picture import draw, scale_for
from course_utils.stories.wall.questions import Question, read_course

SHARE = Question("01a", "How busy is the GPU?", "%")
TIMES = Question("01b", "How many times longer?", "times")
CHOICE = Question("02a", "What happens?", choices=("it waits", "an error"))


def test_guesses_and_measured_values_are_on_one_scale() -> None:
    shown = draw(SHARE, [0, 50, 100, 40, 60], [])
    assert shown["dots"] == [0, 0.4, 0.5, 0.6, 1]
    assert [label for _, label in shown["ticks"]] == ["0", "20", "40", "60", "80", "100"]
    assert (shown["sentence"], shown["marks"]) == ("The median guess is 50 %.", [])
    shown = draw(SHARE, [40], [17, 19, 24])
    assert (shown["marks"], shown["median"]) == ([0.17, 0.19, 0.24], [0.19])
    assert shown["sentence"] == "Measured: 19 %."
    shown = draw(CHOICE, ["it waits", "it waits", "an error"], ["an error"])
    assert shown["bars"] == [["it waits", 2, 0], ["an error", 1, 1]]
    assert shown["sentence"] == "Measured: an error."


def test_any_numbers_have_a_picture() -> None:
    draws = random.Random(0)
    for unit, count, spread in product(("%", "times", "MB"), (1, 2, 5, 60), (0, 0.1, 3, 30)):
        values = [draws.lognormvariate(0, spread) for _ in range(count)]
        values += [0.0] * (draws.random() < 0.3)
        sign = draws.choice((1, 1, -1))
        scale = scale_for(some := [sign * value for value in values], unit)
        assert 2 <= len(scale.ticks) <= 9, (some, scale)
        assert scale.at(scale.ticks[-1]) == 1
        assert all(0 <= scale.at(value) <= 1 for value in some)
        shown = draw(TIMES._replace(unit=unit), some, some)
        assert all(map(math.isfinite, shown["dots"]))


def test_wall_knows_all_questions_of_the_notebooks() -> None:
    questions, titles = read_course()
    cells = "".join(path.read_text("utf-8") for path in (REPO / "notebooks").glob("*.ipynb"))
    own = {key for key in questions if "-" not in key}
    asked = set(re.findall(r'cu\.predict\((?:\\n",\s*"\s*)?\\"(\w+)\\"', cells))
    assert own == asked
    assert len(own) > 80
    assert questions["02a"].unit == "%"
    assert "none, it is gone" in questions["03c"].choices
    assert questions["09a"].choices[0] == "none"  # in a variable
    for question in questions.values():
        assert question.text
        assert len(question.choices) != 1, question
    assert titles["02"] == "See the GPU wait"
