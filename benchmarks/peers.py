"""Print how fast the record loader is beside other ways to load, and beside what the machine can.

All load the same events in shuffled batches, in turn and many times, so that a busy neighbour meets
all of them alike: once with one thread of torch, once with as many as it takes by itself. The
figures to look at are ratios to the limit: the whole set in memory, copied into batches whose
memory is there already. No loader can be faster that gives such batches.

A batch of the record loader has gaps between its rows, and a copy to a GPU wants none: what it
takes to close them has a line of its own.
"""

from __future__ import annotations

import gc
import shutil
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import torch

from benchmarks.peer_loaders import CONTIGUOUS, LISTED, PEERS, SAME_FILE, SHAPE, THREE_LINES
from course_utils.hardware.machine import drop_cache
from notebooks.stories.peers.course import BATCHED, LIMIT, RECORDS
from notebooks.stories.peers.ledger import Ledger, ledger
from notebooks.stories.peers.measure import threads
from notebooks.stories.peers.peer import Epoch, Peer, numbered

EVENTS, SINGLE, BATCH = 200_000, 4_096, 1_024
ROUNDS, QUICK_ROUNDS, QUICK_S = 3, 21, 0.4  # who takes less than QUICK_S has more rounds
BAR_BATCHED, BAR_LIMIT = 2.0, 0.85


@dataclass
class Measured:
    """One loader, and what its epochs took."""

    epoch: Epoch
    n_events: int
    books: Ledger
    first_s: float
    seconds: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Events per second, of the median epoch."""
        return self.n_events / median(self.seconds or [self.first_s])


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, EVENTS, SINGLE)
        for count in sorted({1, torch.get_num_threads()}, reverse=True):
            with threads(count):
                measured = prepare(folder)
                measure(measured)
                print_table(measured)
        with threads(1):
            print_bars(measured)  # one thread was the last
            del measured
            gc.collect()  # pages that are still mapped cannot be dropped
            print_cold(folder)


def write(folder: Path, n_events: int, n_single: int) -> None:
    """Write the events in the format of each peer; where it reads one by one, the first of them."""
    events = numbered(n_events, SHAPE[0])
    for peer in PEERS.values():
        place = folder_of(peer, folder)
        if not place.exists():
            place.mkdir()
            with suppress(ModuleNotFoundError):
                peer.write(place, events[: n_single if peer.one_by_one else n_events])


def folder_of(peer: Peer, folder: Path) -> Path:
    """Return where the files of a peer are."""
    return folder / peer.write.__name__


def prepare(
    folder: Path, n_events: int = EVENTS, n_single: int = SINGLE, batch_size: int = BATCH
) -> dict[str, Measured]:
    """Open every loader, and run an epoch that warms it up."""
    found = {}
    for name, peer in PEERS.items():
        try:
            epoch = peer.load(folder_of(peer, folder), batch_size)
        except ModuleNotFoundError as error:
            print(f"{name} was left out: install it with `pip install {error.name}`.")
            continue
        n = n_single if peer.one_by_one else n_events
        seconds, batches = timed(epoch, 0)
        found[name] = Measured(epoch, n, ledger(batches, n), seconds)
    return found


def measure(measured: dict[str, Measured]) -> None:
    """Run the epochs of all loaders in turn."""
    for number in range(1, QUICK_ROUNDS + 1):
        for one in measured.values():
            if number <= ROUNDS or one.first_s < QUICK_S:
                seconds, batches = timed(one.epoch, number)
                one.seconds.append(seconds)
                books = ledger(batches, one.n_events)
                if not (books.complete and books.shuffled):  # keep what is wrong
                    one.books = books


def timed(epoch: Epoch, number: int) -> tuple[float, list[torch.Tensor]]:
    """Return the seconds of an epoch and the places of its events, batch by batch."""
    start = time.perf_counter()
    batches = list(epoch(number))
    return time.perf_counter() - start, batches


def print_table(measured: dict[str, Measured]) -> None:
    """Print the loaders from slow to fast."""
    print(f"{EVENTS:,} events of 128 x 4 float32, batches of {BATCH:,}, warm;")
    print(f"threads of torch: {torch.get_num_threads()}")
    print("first: the first epoch; neighbours: of a batch on disk, 1 is as by chance")
    print(f"{'events/s':>59} {'of limit':>8} {'first':>10}{'served':>10}{'distinct':>10}  neighb.")
    limit = measured[LIMIT].rate
    for name, one in sorted(measured.items(), key=lambda item: item[1].rate):
        first = one.n_events / one.first_s
        print(f"  {name:46}{one.rate:11,.0f} {one.rate / limit:8.4f} {first:10,.0f} {one.books}")


def print_bars(measured: dict[str, Measured]) -> None:
    """Print what the record loader has to reach."""
    records, books = measured[RECORDS], measured[RECORDS].books
    bars = {**dict.fromkeys((LISTED, SAME_FILE, BATCHED), BAR_BATCHED), LIMIT: BAR_LIMIT}
    for name, bar in bars.items():
        ratio, most = (one.rate / measured[name].rate for one in (records, measured[LIMIT]))
        held = "holds" if ratio >= bar else f"DOES NOT HOLD; the limit itself has {most:.2f}"
        print(f"  {RECORDS} / {name}: {ratio:.2f} (bar {bar:g}) {held}")
    ratio = measured[CONTIGUOUS].rate / measured[THREE_LINES].rate
    print(f"  {CONTIGUOUS} / {THREE_LINES}: {ratio:.2f}; both give batches without gaps")
    once = "every event exactly once" if books.complete else "NOT every event exactly once"
    mixed = "shuffled over the whole set" if books.shuffled else "NOT shuffled over the whole set"
    print(f"  {RECORDS}, in all {len(records.seconds) + 1} epochs: {once}, {mixed}")


def print_cold(folder: Path) -> None:
    """Print the first epoch of files that are not in memory."""
    for name in RECORDS, BATCHED:
        with tempfile.TemporaryDirectory(dir=folder) as place:
            copy = shutil.copytree(folder_of(PEERS[name], folder), Path(place, "copy"))
            dropped = drop_cache(copy)
            if not dropped:
                print(f"  {dropped}")
                return
            seconds, _ = timed(PEERS[name].load(copy, BATCH), 0)
        print(f"  cold, {name}: {EVENTS / seconds:,.0f} events/s")


if __name__ == "__main__":
    main()
