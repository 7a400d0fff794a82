"""Tables of rates, and the bars that our loaders have to reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.peers.events import CONTIGUOUS, LISTED, SAME_FILE, THREE_LINES, TWO_THREADS
from benchmarks.peers.images import DECODER, OURS, PILLOW, ROUGH, V2
from benchmarks.peers.images.wanted import CORES
from benchmarks.peers.rounds import Loaded
from benchmarks.peers.tables import Table
from course_stories.peers.course import BATCHED, LIMIT, RECORDS
from course_stories.peers.measure import Measured, threads
from course_utils.hardware.machine import drop_cache

Rows = Mapping[str, Measured]
Bar = tuple[str, str, float]  # whose rate over whose, and how much it has to be
BEST = "the best of the others"
BARS: dict[str, list[Bar]] = {
    "events": [
        *((RECORDS, other, 2.0) for other in (LISTED, SAME_FILE, BATCHED)),
        (RECORDS, LIMIT, 0.85),
        (CONTIGUOUS, THREE_LINES, 0.0),  # both give batches without gaps
        (TWO_THREADS, BEST, 1.0),
    ],
    # most of the others do not antialias
    "images, uint8": [(o, *bar) for bar in ((BEST, 1.3), (DECODER, 0.9)) for o in (OURS, ROUGH)],
    "images, float": [(OURS, BEST, 1.3)],
    "photographs": [(OURS, V2, 3.0), (OURS, PILLOW, 3.0)],
}


def print_table(table: Table, rows: Rows, left_out: Mapping[str, str]) -> None:
    """Print the loaders from slow to fast, and why some are missing."""
    print(
        f"{table.title}; warm, medians, in turn; first: until the first batch, and CPU: s per 1,000"
    )
    width = max(map(len, rows), default=0)
    head = "samples/s", "CPU", "first ms", "served", "distinct", "neighb.", "pixels", "uses"
    print(" " * (width + 2) + "".join(f"{name:>11}" for name in head))
    for one in sorted(rows.values(), key=lambda one: one.rate):
        cpu, pixels = 1e3 * one.cpu_s / one.books.served, one.pixels
        apart = "" if pixels is None else f"{pixels:.2f}"
        wrong = "" if one.books.complete else "  NOT every one exactly once"
        print(
            f"  {one.name:{width}}{one.rate:11,.0f}{cpu:11.3g}{1e3 * one.first_s:11,.0f}"
            f"{one.books.served:11,}{one.books.distinct:11,}{one.books.neighbours:11.1f}"
            f"{apart:>11}{one.uses:>16}{wrong}"
        )
    for name, reason in left_out.items():
        print(f"  {name} was left out: {reason}.")


def print_bars(bars: Sequence[Bar], rows: Rows) -> None:
    """Print what our loaders have to reach, as far as those others are here."""
    for ours, other, bar in bars:
        others = [
            row for name, row in rows.items() if name == other or (other == BEST and _rival(name))
        ]
        if ours in rows and others:
            best = max(others, key=_rate)
            ratio = rows[ours].rate / _rate(best)
            held = "holds" if ratio >= bar else "DOES NOT HOLD"
            by = ", by its CPU" if best.name == DECODER else ""
            print(f"  {ours} / {best.name}{by}: {ratio:.2f} (bar {bar:g}) {held}", flush=True)


def _rate(row: Measured) -> float:
    """Return samples a second; of the decoder those for which its processor time would be enough.

    Its threads wait for nothing: what they lose, up to a sixth beside a dozen idle libraries, was
    lost by the system, and a limit that is lost is none.
    """
    return CORES * row.books.served / row.cpu_s if row.name == DECODER else row.rate


def _rival(name: str) -> bool:
    """Tell whether a loader is neither one of ours, nor a limit, nor given two threads of torch."""
    return not name.startswith((OURS, RECORDS, "limit", THREE_LINES))


def print_cold(table: Table, folder: Path) -> None:
    """Print the first epoch of files that are not in memory."""
    for name in RECORDS, BATCHED:
        dropped = drop_cache(table.written(table.peers[name], folder))
        if not dropped:
            print(f"  {dropped}")
            return
        with threads(1):
            loaded = Loaded(name, table, folder)
            seconds = loaded.first_s + loaded.run(0).seconds
        print(f"  cold, {name}: {table.count / seconds:,.0f} events/s")
