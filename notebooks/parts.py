"""The two parts of a notebook, its core and what is extra, and the minutes that each takes.

The extra part begins with a text cell whose first line is `# Extra`; no core needs it.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import ceil

from nbformat import NotebookNode

WORDS_A_MINUTE = 130  # of a text in a second language that is to be understood
LINES_A_MINUTE = 9
PICTURE, PREDICTION = 1.5, 1.0  # minutes to look at the one, and to think about the other
BY_DOTS = {"●○○": 5, "●●○": 10, "●●●": 20}  # minutes, unless an exercise was timed

_TEXT = ("cu.", "print(", "Markdown(")  # beginnings of cells' last lines that show no picture
_EXERCISE = re.compile(r"^### Exercise (\S+) · (\d+) min · ([●○]{3})(.*)", re.MULTILINE)
_FOLDED = re.compile(r"<details>.*?</details>|<!--.*?-->|```.*?```", re.DOTALL)


@dataclass(frozen=True)
class Part:
    """Words of prose (without folded hints), lines of code, pictures, predictions, exercises."""

    words: int
    lines: int
    pictures: int
    predictions: int
    exercises: dict[str, int]  # minutes by number

    @property
    def reading(self) -> int:
        """Minutes to read text and code, to guess, and to look at the pictures."""
        return ceil(
            self.words / WORDS_A_MINUTE
            + self.lines / LINES_A_MINUTE
            + self.pictures * PICTURE
            + self.predictions * PREDICTION
        )

    @property
    def minutes(self) -> int:
        """Minutes with its exercises."""
        return self.reading + sum(self.exercises.values())

    def __str__(self) -> str:
        return f"{self.reading} + {sum(self.exercises.values())}"


def split(learner: NotebookNode) -> tuple[list[NotebookNode], list[NotebookNode]]:
    """Return the cells of the core, and those that are extra."""
    begins = [number for number, cell in enumerate(learner.cells) if _begins_extra(cell)]
    where = begins[0] if begins else len(learner.cells)
    return learner.cells[:where], learner.cells[where:]


def part(cells: Iterable[NotebookNode]) -> Part:
    """Count what a learner reads and does in these cells of the learner's version."""
    text = {kind: [c.source for c in cells if c.cell_type == kind] for kind in ("markdown", "code")}
    prose = [_FOLDED.sub(" ", source) for source in text["markdown"]]
    exercises = [found for source in text["markdown"] for found in _EXERCISE.findall(source)]
    return Part(
        words=sum(len(source.split()) for source in prose),
        lines=sum(bool(line.strip()) for source in text["code"] for line in source.splitlines()),
        pictures=sum(_shows_picture(source) for source in text["code"]),
        predictions=sum(source.count("cu.predict(") for source in text["code"]),
        exercises={number: int(minutes) for number, minutes, _, _ in exercises},
    )


def exercise_times(cells: Iterable[NotebookNode]) -> Iterator[str]:
    """Yield a sentence for each exercise whose minutes are neither those of its dots nor timed."""
    for cell in cells:
        for number, minutes, dots, mark in _EXERCISE.findall(cell.source):
            expected = BY_DOTS.get(dots)
            if int(minutes) != expected and "<!-- timed -->" not in mark:
                yield (
                    f"exercise {number} says {minutes} min and its dots {expected}: write that, or "
                    "`<!-- timed -->` behind the dots once somebody has timed it."
                )


def announced(core: Part, extra: Part) -> str:
    """Return the minutes as the header of a notebook gives them."""
    exercises = f" + {sum(core.exercises.values())} for the exercises" if core.exercises else ""
    more = f"; what is extra takes {extra.minutes}" if extra.words else ""
    return f"{core.reading} to read{exercises}{more}"


def _shows_picture(source: str) -> bool:
    """Return whether a cell ends with an expression whose value is drawn below it."""
    try:
        *_, last = ast.parse(source).body
    except (SyntaxError, ValueError):  # a magic, or no statement
        return False
    return isinstance(last, ast.Expr) and not ast.unparse(last).startswith((*_TEXT, "..."))


def _begins_extra(cell: NotebookNode) -> bool:
    return bool(cell.cell_type == "markdown" and cell.source.startswith("# Extra"))
