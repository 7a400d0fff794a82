"""Loops on two real GPUs, recorded by `tests/gpu/run.py`, and on emulated GPUs with their times."""

from course_utils.paths import shipped
from keepfed.measure.exchange import load_chrome
from keepfed.measure.picture import Control, Picture, TimelineGrid, key, states
from keepfed.measure.trace import Trace

CARDS = ("H200", "H100")
RUNS = {
    "pinned": "short-steps-pinned-measured",
    "prefetcher": "short-steps-prefetcher-measured",
    "prefetcher, emulated": "short-steps-prefetcher-emulated",
}


def recordings(card: str, run: str) -> list[Trace]:
    """Return the recorded traces of a card whose file names end with `run`, in their order."""
    paths = shipped("notebooks/recordings").glob(f"nvidia-{card.lower()}*-{run}.json")
    return [load_chrome(path) for path in sorted(paths)]


def real_cards() -> TimelineGrid:
    """Return a picture of short steps with and without a prefetcher, with a switch for the card."""
    switch, pictures = [Control("card", "Card", CARDS)], {}
    for state in states(switch):
        traces = [recordings(str(state["card"]), run)[0] for run in RUNS.values()]
        pictures[key(switch, state)] = Picture(traces, [*RUNS])
    return TimelineGrid(switch, pictures)
