"""Format shares, counts, sizes and times in the same way everywhere."""

from __future__ import annotations

import math
import re
import shutil
from textwrap import fill

_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f]")


def percent(share: float) -> str:
    """Return `share` as "62 %". Only exactly 0 gives "0 %", and only exactly 1 gives "100 %"."""
    if 0 < share < 0.005:
        return "< 1 %"
    if 0.995 <= share < 1:
        return "> 99 %"
    return f"{100 * share:.0f} %"


def plural(count: int, thing: str) -> str:
    """Return "1 gap" or "2 gaps", "1 batch" or "2 batches"."""
    ending = "es" if thing.endswith(("tch", "sh", "s", "x")) else "s"
    return f"{count:,} {thing}" + ("" if count == 1 else ending)


def factor(times: float) -> str:
    """Return a factor with two or more digits: "1.4", "26", "260"."""
    return f"{times:.1f}" if times < 9.95 else f"{times:,.0f}"


def duration(ns: float) -> str:
    """Return a duration in a suitable unit: "3.2 h", "2.41 s", "38 ms", "7.5 ms", "420 µs"."""
    if ns >= 600e9:
        return f"{ns / 3600e9:.1f} h" if ns >= 7200e9 else f"{ns / 60e9:.0f} min"
    if ns >= 1e9:
        return f"{ns / 1e9:.2f} s"
    if ns >= 1e6:
        return f"{ns / 1e6:.0f} ms" if ns >= 1e7 else f"{ns / 1e6:.1f} ms"
    return f"{ns / 1e3:.0f} µs" if ns else "0 s"


def size(count: float) -> str:
    """Return a number of bytes in a suitable unit: "3.20 GB", "38 MB", "7.5 MB", "12 B"."""
    if abs(count) >= 1e9:
        return f"{count / 1e9:,.2f} GB"
    for unit, factor in (("MB", 1e6), ("kB", 1e3)):
        if abs(count) >= factor:
            amount = count / factor
            return f"{amount:.0f} {unit}" if abs(amount) >= 10 else f"{amount:.1f} {unit}"
    return f"{count:.0f} B"


def axis(length_ns: int, count: int) -> dict[int, str]:
    """Return the labels of about `count` round times from 0 to `length_ns`, all in one unit."""
    raw = length_ns / count
    power = 10 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw)
    unit, size = ("s", 1e9) if step >= 1e8 else ("ms", 1e6) if step >= 1e5 else ("µs", 1e3)
    digits = max(0, -math.floor(math.log10(step / size) + 1e-9))
    times = [round(number * step) for number in range(int(length_ns / step) + 1)]
    return {time: f"{time / size:.{digits}f} {unit}" if time else "0" for time in times}


def columns(most: int) -> int:
    """Return the width of the terminal, at most `most`; without a terminal, `most`."""
    return min(shutil.get_terminal_size((most, 24)).columns, most)


def wrap(text: str, *, indent: int = 0, most: int = 10_000) -> str:
    """Return `text` with lines no longer than the terminal is wide, broken between words.

    Control characters become "?", because a file of somebody else may have them in its names.

    Args:
        text: One or more lines.
        indent: Spaces in front of each line after a break.
        most: The longest line, in columns. Without a terminal, all lines may be this long.
    """
    width = columns(most)
    return "\n".join(
        line
        if len(line) <= width
        else fill(
            line,
            width,
            subsequent_indent=" " * indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in _CONTROLS.sub("?", text).splitlines()
    )
