"""Batches out of one spot, without and with a buffer, and out of sixteen spots."""

from course_stories.lecture import Finding
from course_stories.streaming import train_on
from course_utils.teaching.notebook import data_path

WAYS = {  # shards read in turn, events that one request reads, events to draw from
    "one spot": (1, 32, 1),
    "one spot, a buffer": (1, 32, 200),  # of a tenth
    "16 spots": (16, 2, 1),
    "long pieces at 16": (16, 32, 100),
}


def run() -> Finding:
    """Train on the events, which lie sorted by energy."""
    table = [["", "seconds", "requests", "batch means scatter, times the ideal"]]
    traces = {}
    for name, (interleave, chunk, buffer) in WAYS.items():
        folder = data_path("events", "S")
        one = train_on(folder, interleave=interleave, chunk=chunk, buffer=buffer)
        traces[name], requests = one.trace, one.storage.counters().requests
        table.append([name, f"{one.total_s:.1f}", str(requests), f"{one.scatter:.1f}"])
    (_, fast, _, rough), (*_, buffered), (_, slow, _, fine), (_, both_s, _, both) = table[1:]
    return Finding(
        f"Out of one spot the batches scatter {rough} times as much as in a full shuffle, with a "
        f"buffer {buffered} times. Sixteen spots bring that to {fine} (below 1 is more even than "
        f"chance), in {slow} s instead of {fast} s; long pieces come to {both} in {both_s} s.",
        traces,
        table,
    )
