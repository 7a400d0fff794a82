"""Collect the instructor's cells of the notebooks into a guide for teaching the course.

    python -m slides.instructor.collect           write slides/INSTRUCTOR.md
    python -m slides.instructor.collect --check   exit 1 if INSTRUCTOR.md is not up to date

`contents.py` reads the cells. The rest is frame.md, with the fields `{days}` for the timetables,
`{room}` for the memory budget, `{demos}` for the demos of the lectures and their notebooks, and
`{pages}` for the pages of the notebooks.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path

from course_stories.lecture.programs import DEMOS
from course_utils.paths import REPO
from course_utils.teaching.exercise import judge_modules
from notebooks.build import HERE as NOTEBOOKS
from notebooks.build import BuildError, number, parts, sources
from slides.instructor.contents import HEADINGS, goals, notes, questions, title
from slides.instructor.room import budget
from slides.instructor.schedule import days, in_class

HERE = Path(__file__).resolve().parent
BUILT = HERE.parent / "INSTRUCTOR.md"

_MINUTES = re.compile(r"^- \*(\d+) min\* ", re.MULTILINE)
_EXERCISE = re.compile(r'^@exercise\(".*?title="(.*?)".*?"""(.*?)"""', re.MULTILINE | re.DOTALL)
_NEW_PAGE = '<div style="page-break-before: always"></div>'


def script_minutes(script: str) -> list[int]:
    """Return the minutes of each item of a script."""
    return [int(minutes) for minutes in _MINUTES.findall(script)]


def page(source: Path) -> Iterator[str]:
    """Yield the paragraphs of a notebook's page."""
    core, extra = parts(source)
    together = in_class(number(source), core)
    more = f" The optional sections take {extra.minutes} ({extra})." if extra.words else ""
    solved = f"../notebooks/solutions/{source.stem}.ipynb"
    yield _NEW_PAGE
    yield f"## {title(source)}"
    yield (
        f"The core takes {together} minutes in a class, and {core.minutes} ({core}) for a learner "
        f"alone.{more} [The solved notebook]({solved})."
    )
    if any(goal.checks for goal in goals(source)):
        yield "### Goals and checks"
        yield "\n".join(checks(source))
    for label, text in notes(source).items():
        yield f"### {HEADINGS[label]}"
        if label == "Script":
            text = _on_the_clock(text, together)
        elif label == "Guesses":
            for key, question in questions(source).items():
                text = text.replace(f"- **{key}** ", f"- **{key}** *{question.text}* ")
        yield text


def checks(source: Path) -> Iterator[str]:
    """Yield a table of the goals of a notebook, and of what checks that a learner reached them."""
    _, extra = parts(source)
    yield "| Goal | Exercises and predictions | The check of the exercise |"
    yield "|---|---|---|"
    for goal in goals(source):
        named, described = [], []
        for key in goal.checks:
            if "." in key:
                name, task = exercise(key)
                key += f" *{name}*" + " (optional)" * (key in extra.exercises)
                described.append(task)
            named.append(key)
        yield f"| {goal.text} | {', '.join(named) or 'none'} | {' '.join(described)} |"


def exercise(key: str) -> tuple[str, str]:
    """Return the title of an exercise, such as "2.1", and what its check does."""
    module = judge_modules()[key.zfill(4)].replace(".", "/")
    found = _EXERCISE.search((REPO / f"{module}.py").read_text("utf-8"))
    assert found, f"{module}.py has no exercise with a title and a docstring"
    return found[1], found[2]


def demos(files: Sequence[Path]) -> Iterator[str]:
    """Yield a table of the demos, their questions, and the notebooks that show them."""
    scripts = {number(path): " ".join(notes(path)["Script"].split()) for path in files}
    yield "| Demo | Question | Notebook |"
    yield "|---|---|---|"
    for name, question in DEMOS.items():
        shown = [where for where, script in scripts.items() if f"`course demo {name}`" in script]
        yield f"| `{name}` | {question} | {', '.join(shown)} |"


def collect() -> str:
    """Return the text of INSTRUCTOR.md."""
    files = sources(NOTEBOOKS / "source")
    counted = {number(path): parts(path) for path in files}
    titles = {number(path): title(path) for path in files}
    readme = (REPO / "README.md").read_text("utf-8")
    text = (HERE / "frame.md").read_text("utf-8")
    for name, block in {
        "days": "\n".join(days(readme, counted, titles)),
        "room": "\n".join(budget()),
        "demos": "\n".join(demos(files)),
        "pages": "\n\n".join(paragraph for path in files for paragraph in page(path)),
    }.items():
        text = text.replace(f"{{{name}}}", block)
    return text


def _on_the_clock(script: str, minutes: int) -> str:
    """Replace the duration of each item of a script by its start and end minute in a class."""
    ends = [0, *accumulate(script_minutes(script))]
    spans = iter(pairwise(round(end * minutes / ends[-1]) for end in ends))
    return _MINUTES.sub(lambda _: "- {}–{} min: ".format(*next(spans)), script)


def main(argv: Sequence[str] | None = None) -> int:
    """Write or check INSTRUCTOR.md, and return the exit status."""
    only_check = "--check" in (sys.argv[1:] if argv is None else argv)
    try:
        text = collect()
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    if not only_check:
        BUILT.write_text(text, "utf-8", newline="\n")
    elif not BUILT.exists() or BUILT.read_text("utf-8") != text:
        print(f"{BUILT.name} is not up to date. Run `make notebooks`.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
