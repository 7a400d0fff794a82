"""Tables of throughputs, and the limits that our loaders must reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.peers.events import LISTED, THREE_LINES, TWO_THREADS
from benchmarks.peers.images import DECODER, OURS, PILLOW, V2
from benchmarks.peers.images.spec import CORES
from course_utils.hardware.machine import drop_cache
from course_utils.stories.peers.course import BATCHED, LIMIT
from course_utils.stories.peers.measure import Measurement, OpenLoader, threads
from course_utils.stories.peers.tables import Table

Rows = Mapping[str, Measurement]
Bar = tuple[str, str, float]  # our loader, other loader, smallest ratio of their throughputs
BEST = "the best of the others"
BARS: dict[str, list[Bar]] = {
    "events": [
        *((THREE_LINES, other, 2.0) for other in (LISTED, BATCHED)),
        (THREE_LINES, LIMIT, 0.85),
        (TWO_THREADS, BEST, 1.0),
    ],
    "images, uint8": [(OURS, BEST, 1.3), (OURS, DECODER, 0.9)],
    "images, float": [(OURS, BEST, 1.3)],
    "photographs": [(OURS, V2, 3.0), (OURS, PILLOW, 3.0)],
}


def print_table(table: Table, rows: Rows, left_out: Mapping[str, str]) -> None:
    """Print the loaders from slow to fast, and the reasons for missing ones."""
    print(
        f"{table.title}; warm, medians, alternating; first: until the first batch, CPU: s per 1,000"
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
    """Print the limits for our loaders, as far as the other loaders are available."""
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


def _rate(row: Measurement) -> float:
    """Return samples/s; for the decoder, the samples/s that its CPU time allows.

    The decoder's threads never wait on purpose. Next to a dozen idle libraries they lose up to a
    sixth of the time to the system, and a limit must not include this loss.
    """
    return CORES * row.books.served / row.cpu_s if row.name == DECODER else row.rate


def _rival(name: str) -> bool:
    """Return whether a loader is neither ours nor a limit."""
    return not name.startswith((OURS, "limit", THREE_LINES))


def print_cold(table: Table, folder: Path) -> None:
    """Print the throughput of the first epoch from files that are not in memory."""
    for name in THREE_LINES, BATCHED:
        dropped = drop_cache(table.written(table.peers[name], folder))
        if not dropped:
            print(f"  {dropped}")
            return
        with threads(1):
            loader = OpenLoader(name, table, folder)
            seconds = loader.first_s + loader.run(0).seconds
        print(f"  cold, {name}: {table.count / seconds:,.0f} events/s")
