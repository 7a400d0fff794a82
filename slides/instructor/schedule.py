"""Make timetables, with breaks, of the paths in the README."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from notebooks.parts import Part

BEGIN = 9 * 60  # minutes after midnight
LUNCH_FROM, AFTERNOON = 11 * 60 + 30, 13 * 60
LUNCH, PAUSE = 60, 15
WITHOUT_PAUSE = 95  # maximum minutes without a break
DAY = 360  # maximum minutes of notebooks in a day

_PATH = re.compile(r"^\| \*\*([^|]*)\*\* \| ([^|]*) \| (\d+) h (\d+) min \|$", re.MULTILINE)
_PIECE = re.compile(r"(\d\d)(?:–(\d\d))?( with [^,]+)?(?:, |$)")  # "00–10 with …, 13"

Counted = Mapping[str, Sequence[Part]]


@dataclass(frozen=True)
class Stop:
    """A notebook on a path, and its minutes there."""

    notebook: str
    minutes: int
    with_extra: bool = False


@dataclass(frozen=True)
class Path:
    """A path of the README: its stated minutes and its notebooks."""

    title: str
    minutes_said: int
    stops: list[Stop]


def paths(readme: str, counted: Counted) -> list[Path]:
    """Return the paths in the table of the README."""
    found = []
    for title, pieces, hours, minutes in _PATH.findall(readme):
        stops = []
        for first, last, with_extra in _PIECE.findall(pieces):
            for each in range(int(first), int(last or first) + 1):
                core, extra = counted[f"{each:02}"]
                more = extra.minutes if with_extra else 0
                stops.append(Stop(f"{each:02}", core.minutes + more, bool(more)))
        found.append(Path(title, 60 * int(hours) + int(minutes), stops))
    return found


def days(readme: str, counted: Counted, titles: Mapping[str, str]) -> Iterator[str]:
    """Yield a table for each day of each path that a class follows."""
    for path in paths(readme, counted):
        if path.title == "At home":
            continue
        cut = list(_cut(path.stops))
        for day, stops in enumerate(cut, 1):
            which = f", day {day}" if len(cut) > 1 else ""
            yield f"**{path.title}{which}**: {sum(s.minutes for s in stops)} minutes of notebooks\n"
            yield "| from | to | |\n|---|---|---|"
            for begin, end, what in timetable(stops):
                if isinstance(what, Stop):
                    what = titles[what.notebook] + ", with optional sections" * what.with_extra
                yield f"| {_clock(begin)} | {_clock(end)} | {what} |"
            yield ""


def _cut(stops: Sequence[Stop]) -> Iterator[list[Stop]]:
    """Yield the stops of each day."""
    day: list[Stop] = []
    for stop in stops:
        if day and sum(s.minutes for s in day) + stop.minutes > DAY:
            yield day
            day = []
        day.append(stop)
    yield day


def timetable(stops: Sequence[Stop]) -> Iterator[tuple[int, int, Stop | str]]:
    """Yield start, end and content of each entry of a day: notebooks and breaks."""
    now, rested, eaten = BEGIN, BEGIN, False
    for place, stop in enumerate(stops):
        if now + stop.minutes - rested > WITHOUT_PAUSE:
            over = now + sum(later.minutes for later in stops[place:])
            lunch = not eaten and now >= LUNCH_FROM and over > AFTERNOON
            eaten = eaten or lunch
            rested = now + (LUNCH if lunch else PAUSE)
            yield now, rested, "*lunch*" if lunch else "*break*"
            now = rested
        yield now, now + stop.minutes, stop
        now += stop.minutes


def _clock(minutes: int) -> str:
    return f"{minutes // 60}:{minutes % 60:02}"
