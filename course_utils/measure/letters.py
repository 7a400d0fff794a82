"""Write the timeline as lines of letters, for a terminal or a notebook that shows no widget."""

from __future__ import annotations

from course_utils.measure.columns import Picture
from course_utils.measure.layout import Lane, busy_shares, lanes, reach
from course_utils.measure.palette import IDLE, LOOKS
from course_utils.measure.trace import STAGES, Trace
from course_utils.measure.wording import duration, percent

MARGIN = 17  # letters left of the axis: name and share of the lane


def text(picture: Picture, width: int = 72) -> str:
    """Return `picture` as lines of letters, one letter per stretch of time: its main stage."""
    lines = [picture.sentence]
    longest = max(end - start for start, end in map(reach, picture.traces))
    for trace, name in zip(picture.traces, picture.names, strict=True):
        lines += ["", " · ".join(part for part in (name, trace.note) if part)]
        lines += [f"{'0':>{MARGIN + 1}}{duration(longest):>{width - 1}}"]
        lines += [_letters(trace, lane, width, longest) for lane in lanes(trace)]
    used = {span.stage for trace in picture.traces for span in trace.spans}
    key = [f"{look.letter} {stage}" for stage, look in LOOKS.items() if stage in used]
    return "\n".join([*lines, "", "   ".join([*key, f"{IDLE.letter} GPU idle"])])


def _letters(trace: Trace, lane: Lane, width: int, longest: int) -> str:
    origin, end = reach(trace)
    shares = busy_shares(lane, (origin, origin + longest), width).sum(axis=0)
    row = ""
    for column in range(width):
        main = int(shares[:, column].argmax())
        idle = lane.name == "gpu" and column * longest < (end - origin) * width
        empty = IDLE.letter if idle else " "
        row += LOOKS[STAGES[main]].letter if shares[:, column].sum() >= 0.5 else empty
    is_gpu = lane.name == "gpu"
    busy = trace.summary().utilisation if is_gpu else lane.busy_ns() / (end - origin)
    return f"{lane.name:<9} {percent(busy):>6} {row.rstrip()}"
