"""Write the guide for teaching the course.

    python -m slides.instructor.collect           write slides/INSTRUCTOR.md
    python -m slides.instructor.collect --check   exit 1 if INSTRUCTOR.md is not up to date

The text is frame.md, with the fields `{days}` for the timetables, `{room}` for the memory budget,
and `{demos}` for the demos of the lectures. `pages.py` makes the pages of the book.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from course_utils.paths import REPO
from course_utils.stories.lecture.programs import DEMOS
from notebooks.build import HERE as NOTEBOOKS
from notebooks.build import BuildError, number, parts, sources
from slides.instructor.contents import notes, title
from slides.instructor.room import budget
from slides.instructor.schedule import days

HERE = Path(__file__).resolve().parent
BUILT = HERE.parent / "INSTRUCTOR.md"


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
    }.items():
        text = text.replace(f"{{{name}}}", block)
    return text


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
