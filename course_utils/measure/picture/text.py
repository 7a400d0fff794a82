"""Write the timeline as lines of letters, for a terminal or a notebook that shows no widget."""

from __future__ import annotations

from course_utils.measure.picture.layout import Lane, busy_shares, lanes, reach
from course_utils.measure.picture.model import Picture
from course_utils.measure.picture.palette import IDLE, LOOKS
from course_utils.measure.spans import STAGES, SpanLog, summarise
from course_utils.words import duration, percent

MARGIN = 17  # letters left of the axis: name and share of the lane


def as_text(picture: Picture, width: int = 72) -> str:
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


def _letters(trace: SpanLog, lane: Lane, width: int, longest: int) -> str:
    origin, end = reach(trace)
    shares = busy_shares(lane, (origin, origin + longest), width).sum(axis=0)
    row = ""
    for column in range(width):
        main = int(shares[:, column].argmax())
        idle = lane.name == "gpu" and column * longest < (end - origin) * width
        empty = IDLE.letter if idle else " "
        row += LOOKS[STAGES[main]].letter if shares[:, column].sum() >= 0.5 else empty
    is_gpu = lane.name == "gpu"
    busy = summarise(trace).utilisation if is_gpu else lane.busy_ns() / (end - origin)
    return f"{lane.name:<9} {percent(busy):>6} {row.rstrip()}"
