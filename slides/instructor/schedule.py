"""Compute how long notebooks take in a class, and make timetables of the paths in the README."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from types import MappingProxyType

from course_utils.paths import recording
from notebooks.build import BuildError
from notebooks.parts import Part

DEFENSE = 0.5  # minutes in which two people defend their guesses
SLACK = 1.15  # a class asks questions, and some laptops need help
STEP = 5  # minutes; nobody remembers that a notebook begins at 10:22

BEGIN = 9 * 60  # minutes after midnight
ARRIVE = 15
LUNCH_FROM, AFTERNOON = 11 * 60 + 30, 13 * 60
LUNCH, PAUSE = 60, 15
WITHOUT_PAUSE = 105  # maximum minutes without a break
DAY = 480  # maximum minutes of a day, with breaks
LONGEST = {
    "Two and a half hours": [150],
    "Half a day": [240],
    "A day": [DAY],
    "Two days": [DAY] * 2,
    "Three days": [DAY] * 3,
}

_SECONDS = "cell_seconds.json"
_PATH = re.compile(r"^\| \*\*([^|]*)\*\* \| ([^|]*) \| ([^|]*) \| ([^|]*) \|$", re.MULTILINE)
_PIECE = re.compile(r"(\d\d)(?:–(\d\d))?( with [^,]+)?(?:, |$)")  # "00–10 with …, 13"

Counted = Mapping[str, Sequence[Part]]


@dataclass(frozen=True)
class Stop:
    """A notebook on a path, its minutes for one learner, and the minutes of its core in a class."""

    notebook: str
    alone: int
    in_class: int


@dataclass(frozen=True)
class Path:
    """A path of the README: its stated times and its notebooks."""

    title: str
    said_alone: str
    said_in_class: str
    stops: list[Stop]

    @property
    def alone(self) -> str:
        """Time of one learner."""
        return duration(sum(stop.alone for stop in self.stops))

    @property
    def days(self) -> list[list[Stop]]:
        """The notebooks of each day in a class; no days if the path is for one learner."""
        return list(_cut(self.stops)) if self.title in LONGEST else []

    @property
    def in_class(self) -> str:
        """Time of each day in a class, with arrival, breaks and lunch."""
        return " + ".join(duration(length(day)) for day in self.days)


def in_class(notebook: str, core: Part) -> int:
    """Return the minutes that the core of a notebook takes in a class.

    Raises:
        BuildError: If nobody has measured how long its cells run.
    """
    measured: dict[str, int] = json.loads(recording(_SECONDS).read_text("utf-8"))["seconds"]
    if notebook not in measured:
        raise BuildError(
            f"{_SECONDS} lacks notebook {notebook}. Run `python -m "
            f"notebooks.recordings.make_cell_seconds notebooks/recordings/{_SECONDS} {notebook}`."
        )
    minutes = core.minutes + measured[notebook] / 60 + DEFENSE * core.predictions
    return STEP * ceil(SLACK * minutes / STEP)


def duration(minutes: int) -> str:
    """Return minutes as text, such as "3 h 05 min"."""
    return f"{minutes // 60} h {minutes % 60:02} min"


def paths(readme: str, counted: Counted) -> list[Path]:
    """Return the paths in the table of the README."""
    found = []
    for title, pieces, alone, together in _PATH.findall(readme):
        stops = []
        for first, last, with_extra in _PIECE.findall(pieces):
            for each in range(int(first), int(last or first) + 1):
                core, extra = counted[key := f"{each:02}"]
                more = extra.minutes if with_extra else 0
                stops.append(Stop(key, core.minutes + more, in_class(key, core)))
        found.append(Path(title, alone, together, stops))
    return found


def days(readme: str, counted: Counted, titles: Mapping[str, str]) -> Iterator[str]:
    """Yield a table for each day of the longest path, in which the shorter paths end earlier.

    Raises:
        BuildError: If a shorter path is not the beginning of the longest one.
    """
    *shorter, longest = [path for path in paths(readme, counted) if path.days]
    for path in shorter:
        if path.stops != longest.stops[: len(path.stops)]:
            raise BuildError(f"README.md: {path.title} is not the beginning of {longest.title}.")
    ends = {path.stops[-1].notebook: f"end of **{path.title}**" for path in shorter}
    for day, stops in enumerate(longest.days, 1):
        yield f"**Day {day}**: {duration(length(stops))}\n"
        yield from table(stops, titles, ends)
        yield ""


def table(
    stops: Sequence[Stop], titles: Mapping[str, str], ends: Mapping[str, str] = MappingProxyType({})
) -> Iterator[str]:
    """Yield the timetable of a day, with the paths that end at a notebook of `ends`."""
    last = " |" if ends else ""
    yield f"| from | to | |{last}\n|---|---|---|{last and '---|'}"
    for begin, end, what in timetable(stops):
        text = titles[what.notebook] if isinstance(what, Stop) else what
        remark = ends.get(what.notebook, "") if isinstance(what, Stop) else ""
        yield f"| {_clock(begin)} | {_clock(end)} | {text} |{last and f' {remark} |'}"


def length(stops: Sequence[Stop]) -> int:
    """Return the minutes of a day with its breaks."""
    *_, (_, end, _) = timetable(stops)
    return end - BEGIN


def _cut(stops: Sequence[Stop]) -> Iterator[list[Stop]]:
    """Yield the stops of each day."""
    day: list[Stop] = []
    for stop in stops:
        if day and length([*day, stop]) > DAY:
            yield day
            day = []
        day.append(stop)
    yield day


def timetable(stops: Sequence[Stop]) -> Iterator[tuple[int, int, Stop | str]]:
    """Yield start, end and content of each entry of a day: notebooks and breaks."""
    now, rested, eaten = BEGIN + ARRIVE, BEGIN + ARRIVE, False
    yield BEGIN, now, "*arrive, run* `course check`"
    for place, stop in enumerate(stops):
        if now + stop.in_class - rested > WITHOUT_PAUSE:
            over = now + sum(later.in_class for later in stops[place:])
            lunch = not eaten and now >= LUNCH_FROM and over > AFTERNOON
            eaten = eaten or lunch
            rested = now + (LUNCH if lunch else PAUSE)
            yield now, rested, "*lunch*" if lunch else "*break*"
            now = rested
        yield now, now + stop.in_class, stop
        now += stop.in_class


def _clock(minutes: int) -> str:
    return f"{minutes // 60}:{minutes % 60:02}"
