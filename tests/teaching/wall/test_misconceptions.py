"""The place of a message in the source code of the exercises."""

from pathlib import Path

import pytest

import course_utils.exercises.nb01.ex1_pad_events as pad
import course_utils.exercises.nb02.ex4_count_the_cost as cost
from course_utils.teaching.wall import locate, sentences

PAD = "course_utils.exercises.nb01.ex1_pad_events"


def line_of(module: object, text: str) -> str:
    """Return the place of the line with this text."""
    path = Path(str(vars(module)["__file__"]))
    lines = path.read_text("utf-8").splitlines()
    (number,) = (number for number, line in enumerate(lines, 1) if text in line)
    return f"{path.parent.name}/{path.stem}:{number}"


def test_message_with_values_is_found_at_its_template() -> None:
    message = (
        "The longest event of this batch has 9 pulses, but your batch has space for 12. A smaller "
        "space loses pulses, a larger one is wasted."
    )
    assert locate(message, PAD) == line_of(pad, "The longest event of this batch")


def test_message_inside_a_longer_one_is_found() -> None:
    message = "wasted_per_month = 2160: This is the complete bill, but 30 % of the time was useful."
    assert locate(message, cost.__name__) == line_of(cost, "This is the complete bill")


@pytest.mark.parametrize(
    ("message", "module"),
    [
        ("Your code stopped: line 3 in the cell, `x`: NameError: x.", PAD),
        ("The mask is true for padding, like PyTorch's key_padding_mask.", "tests.mine"),
    ],
)
def test_message_of_the_learners_code_has_no_place(message: str, module: str) -> None:
    assert locate(message, module) == ""


def test_each_line_has_its_longest_text() -> None:
    found = sentences(Path(str(pad.__file__)))
    place = int(line_of(pad, "The mask is {got[mask].dtype}").partition(":")[2])
    assert found[place].startswith("The mask is {got[mask].dtype}. With such numbers")
