"""Batches from one position of a file, with and without a buffer, and from 16 positions."""

from course_utils.stories.lecture import Finding
from course_utils.stories.streaming import train_on
from course_utils.teaching.notebook import data_path

WAYS = {  # shards read alternately, events per request, buffer size in events
    "one spot": (1, 32, 1),
    "one spot, a buffer": (1, 32, 200),  # a tenth of the events
    "16 spots": (16, 2, 1),
    "long pieces at 16": (16, 32, 100),
}


def run() -> Finding:
    """Train on the events, which are stored sorted by energy."""
    table = [["", "seconds", "requests", "scatter of batch means / ideal"]]
    traces = {}
    for name, (interleave, chunk, buffer) in WAYS.items():
        folder = data_path("events", "S")
        one = train_on(folder, interleave=interleave, chunk=chunk, buffer=buffer)
        traces[name], requests = one.trace, one.storage.counters().requests
        table.append([name, f"{one.total_s:.1f}", str(requests), f"{one.scatter:.1f}"])
    (_, fast, _, rough), (*_, buffered), (_, slow, _, fine), (_, both_s, _, both) = table[1:]
    return Finding(
        f"From one spot, the batch means scatter {rough} times as much as in a full shuffle, and "
        f"with a buffer {buffered} times. Sixteen spots reduce this to {fine} (below 1 is more "
        f"even than chance) in {slow} s instead of {fast} s. Long pieces reach {both} in "
        f"{both_s} s.",
        traces,
        table,
    )
