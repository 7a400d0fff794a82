"""The pages of the book for teachers: one for each notebook and one for each path, to print."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from pathlib import Path

from course_utils.paths import REPO
from notebooks.build import HERE as NOTEBOOKS
from notebooks.build import number, parts, sources
from notebooks.parts import Part
from slides.instructor.collect import BUILT, HERE
from slides.instructor.contents import HEADINGS, goals, notes, questions, title
from slides.instructor.schedule import duration, in_class, length, paths, table

FOLDER = "teach"
_MINUTES = re.compile(r"^- \*(\d+) min\* ", re.MULTILINE)
_GUESS = re.compile(r"^- \*\*(\w+)\*\* (.*\n?(?:  .*\n?)*)", re.MULTILINE)
_NEW_PAGE = '<div style="page-break-before: always"></div>'
_LINK = re.compile(r"\]\((?:\.\./docs|instructor)/([\w-]+\.md)\)")


def teacher_pages() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each page for teachers."""
    files = sources(NOTEBOOKS / "source")
    counted = {number(path): parts(path) for path in files}
    titles = {number(path): title(path) for path in files}
    for path in files:
        yield f"{FOLDER}/{number(path)}.md", "\n\n".join(page(path, *counted[number(path)]))
    printed = dict(_path_pages(counted, titles))
    for name, text in printed.items():
        yield f"{FOLDER}/{name}.md", text
    yield f"{FOLDER}/questions.md", (HERE / "questions.md").read_text("utf-8")
    listed = "\n".join(["questions", *printed, *titles])
    guide = _LINK.sub(_linked, BUILT.read_text("utf-8"))
    yield f"{FOLDER}/guide.md", f"{guide}\n```{{toctree}}\n:maxdepth: 1\n\n{listed}\n```\n"


def _linked(link: re.Match[str]) -> str:
    return f"]({link[1] if link[1] == 'questions.md' else f'../{link[1]}'})"


def page(source: Path, core: Part, extra: Part) -> Iterator[str]:
    """Yield the paragraphs of a notebook's page, for a class that does the core."""
    together = in_class(number(source), core)
    yield f"# {title(source)}"
    yield f"{together} minutes in a class, without the optional sections."
    if checked := "\n".join(checks(source, extra)):
        yield f"## Goals and their checks\n\n{checked}"
    for label, text in notes(source).items():
        if label == "Script":
            text = _on_the_clock(text, together)
        elif label == "Guesses":
            text = "\n".join(guesses(source, text))
        if text:
            yield f"## {HEADINGS[label]}"
            yield text


def checks(source: Path, extra: Part) -> Iterator[str]:
    """Yield each goal of a notebook that is checked, with its exercises and predictions."""
    for goal in goals(source):
        keys = [f"{key} (optional)" if key in extra.exercises else key for key in goal.checks]
        if keys:
            yield f"- {goal.text}: {', '.join(keys)}"


def guesses(source: Path, text: str) -> Iterator[str]:
    """Yield the question and the guesses of each prediction of the core."""
    asked = questions(source, core=True)
    for key, words in _GUESS.findall(text):
        if key in asked:
            yield f"- **{key}** *{asked[key].text}* {words.rstrip()}"


def script_minutes(script: str) -> list[int]:
    """Return the minutes of each item of a script."""
    return [int(minutes) for minutes in _MINUTES.findall(script)]


def _on_the_clock(script: str, minutes: int) -> str:
    """Replace the duration of each item of a script by its start and end minute in a class."""
    ends = [0, *accumulate(script_minutes(script))]
    spans = iter(pairwise(round(end * minutes / ends[-1]) for end in ends))
    return _MINUTES.sub(lambda _: "- {}–{} min: ".format(*next(spans)), script)


def _path_pages(
    counted: Mapping[str, Sequence[Part]], titles: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield a page for each path of a class: its timetable, then the pages of its notebooks."""
    readme = (REPO / "README.md").read_text("utf-8")
    for path in paths(readme, counted):
        if not path.days:
            continue
        parts_of_page = [f"# Teach it in {path.title.lower()}"]
        for day, stops in enumerate(path.days, 1):
            which = f"Day {day}" if len(path.days) > 1 else "Timetable"
            rows = "\n".join(table(stops, titles))
            parts_of_page.append(f"**{which}**: {duration(length(stops))}\n\n{rows}")
        for stop in path.stops:
            parts_of_page += [_NEW_PAGE, f"```{{include}} {stop.notebook}.md\n```"]
        yield path.title.lower().replace(" ", "-"), "\n\n".join(parts_of_page)
