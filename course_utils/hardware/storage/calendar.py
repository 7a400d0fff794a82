"""Timing of an emulated storage: a calendar of reservations that all processes share.

A request takes the slot that is free first, waits `request_ms`, and then sends its bytes through a
link that all requests share. The requesting process reserves slot and link, and sleeps until its
bytes would have arrived, so eight processes together cannot exceed the bandwidth of the link.

Writes, failures and random variation between requests are deliberately not modeled.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import asdict, dataclass

from course_utils.hardware.clock import HostClock, RealClock
from course_utils.hardware.storage.page_cache import BLOCK, UNIT, PageCache
from course_utils.hardware.storage.presets import StoragePreset
from course_utils.hardware.storage.shared_state import (
    SharedState,
    create,
    remove_abandoned,
    remove_at_exit,
)
from keepfed.forks import reset_after_fork
from keepfed.formatting import percent, plural, size

_MAX_LATE_NS = 1_000_000


@dataclass(frozen=True)
class Counters:
    """Requests that a storage received, and their effect, over all processes."""

    opens: int = 0
    lookups: int = 0  # requests for a size or a directory listing
    requests: int = 0  # reads sent to the storage, not fully in the page cache
    bytes_read: int = 0  # delivered by the storage
    bytes_used: int = 0  # requested by the program
    hits: int = 0  # blocks of 32 KiB found in the page cache
    misses: int = 0

    @property
    def hit_share(self) -> float:
        """Share of blocks found in the page cache."""
        return self.hits / max(1, self.hits + self.misses)

    @property
    def read_amplification(self) -> float:
        """Bytes read from the storage for each byte used."""
        return self.bytes_read / max(1, self.bytes_used)

    def __str__(self) -> str:
        return (
            f"{plural(self.opens, 'open')}, {plural(self.lookups, 'look-up')}, "
            f"{plural(self.requests, 'request')}; "
            f"{size(self.bytes_read)} read for {size(self.bytes_used)} used "
            f"({self.read_amplification:.2f}x); page cache hits {percent(self.hit_share)}"
        )


# Layout of the memory: the process that holds the lock; when the link and the metadata server are
# free; the counters; when each slot is free; where its last request ended; the page cache.
_LINE, _METADATA, _COUNTERS = 1, 2, 3
_OPENS, _LOOKUPS, _REQUESTS, _READ, _USED, _HITS, _MISSES = range(_COUNTERS, _COUNTERS + 7)
_WORDS = _MISSES + 1


def make_state(root: str, preset: StoragePreset) -> str:
    """Create the shared state of a storage, removed at exit, and return its folder."""
    size = 8 * (_WORDS + 2 * preset.requests_at_once)
    if units := _cache_units(preset):
        size += PageCache.memory_size(units)
    remove_abandoned(but=_attached)
    folder = create({"root": root, "preset": asdict(preset)}, size)
    device = attach(folder)
    device.state.mark_alive()
    remove_at_exit(folder, device.close)
    return folder


class Device:
    """One emulated storage, as seen by this process. Times are in nanoseconds."""

    def __init__(self, state: SharedState):
        """Map the calendar and the page cache onto the shared memory."""
        self.state = state
        # A thread that wakes up late requests early next time (see `wait`), so `early_ns` is 0.
        self.clock: HostClock = RealClock(early_ns=0)
        self.preset = StoragePreset(**state.settings["preset"])
        slots = self.preset.requests_at_once
        words = state.memory[: 8 * (_WORDS + 2 * slots)].cast("q")
        self._words = words[:_WORDS]
        self._free = words[_WORDS : _WORDS + slots]
        self._end = words[_WORDS + slots :]
        self._cache: PageCache | None = None
        if units := _cache_units(self.preset):
            self._cache = PageCache(state.memory[8 * (_WORDS + 2 * slots) :], units)
        self._of_thread = threading.local()
        state.repair = self._clear_cache  # only its links can be half written

    def look_up(self, *, opening: bool) -> None:
        """Wait for the metadata server, which opens a file or reports its size."""
        with self.state.locked():
            self._words[_OPENS if opening else _LOOKUPS] += 1
            start = max(self._now(), self._words[_METADATA])
            self._words[_METADATA] = start + int(1e9 / self.preset.opens_per_s)
        self.wait(start + int(1e6 * self.preset.open_ms))

    def reserve(self, file: int, start: int, stop: int, *, size: int, in_hand: int = -1) -> int:
        """Reserve a read of bytes `start` to `stop` of a file of `size` bytes.

        `in_hand` is the block that this reader used last. Reading it again does not count as a hit.

        Returns:
            Time at which the last byte arrives, in ns.
        """
        with self.state.locked():
            now = self._now()
            self._words[_USED] += stop - start
            if self._cache is None:
                return self._request(now, file, start, stop)
            return self._through_cache(self._cache, now, file, (start, stop, size), in_hand)

    def wait(self, until: int) -> None:
        """Sleep until `until`, and record by how much the system overslept."""
        if until > self.clock():
            self.clock.sleep_until(until)
            self._of_thread.late = min(self.clock() - until, _MAX_LATE_NS)

    def counters(self) -> Counters:
        """Return the counters."""
        with self.state.locked():
            return Counters(*self._words[_COUNTERS:_WORDS])

    def reset_counters(self) -> None:
        """Set all counters to zero."""
        with self.state.locked():
            for word in range(_COUNTERS, _WORDS):
                self._words[word] = 0

    def drop_caches(self) -> None:
        """Empty the page cache."""
        with self.state.locked():
            self._clear_cache()

    def close(self) -> None:
        """Release the shared memory."""
        del self._words, self._free, self._end, self._cache
        self.state.close()

    def _now(self) -> int:
        """Return the time at which this thread would ask if sleeps were exact."""
        late: int = getattr(self._of_thread, "late", 0)
        self._of_thread.late = 0
        return self.clock() - late

    def _clear_cache(self) -> None:
        if self._cache is not None:
            self._cache.clear()

    def _through_cache(
        self, cache: PageCache, now: int, file: int, asked: tuple[int, int, int], in_hand: int
    ) -> int:
        start, stop, size = asked
        done, missing = now, list[int]()  # nodes of adjacent blocks that are not cached
        first, end = start // BLOCK, -(-stop // BLOCK)
        for block in range(first, end):
            length = min(BLOCK, size - block * BLOCK)
            node, hit = cache.use(hash((file, block)), -(-length // UNIT))
            if hit:
                self._words[_HITS] += block != in_hand
                done = max(done, cache.ready[node])  # it may still be in flight
            else:
                self._words[_MISSES] += 1
                missing.append(node)
            if missing and (hit or block == end - 1):
                after = block if hit else block + 1
                span = (after - len(missing)) * BLOCK, min(after * BLOCK, size)
                arrived = self._request(now, file, *span)
                for node in missing:
                    cache.ready[node] = arrived
                missing.clear()
                done = max(done, arrived)
        return done

    def _request(self, now: int, file: int, start: int, stop: int) -> int:
        self._words[_REQUESTS] += 1
        self._words[_READ] += stop - start
        slot, latency_ms = self._slot(hash((file, start)))
        first_byte = max(now, self._free[slot]) + int(1e6 * latency_ms)
        size = stop - start
        line = max(first_byte, self._words[_LINE]) + int(1e3 * size / self.preset.mb_s)
        done = max(line, first_byte + int(1e3 * size / self.preset.stream_mb_s))
        self._words[_LINE] = line
        self._free[slot] = done
        self._end[slot] = hash((file, stop))
        return done

    def _slot(self, place: int) -> tuple[int, float]:
        """Choose the slot whose last read ended here (sequential read), or the least busy one."""
        if self.preset.readahead:
            ends = self._end.tolist()
            if place in ends:
                return ends.index(place), 0
        free = self._free.tolist()
        return free.index(min(free)), self.preset.request_ms


_attached: dict[str, Device] = {}
_attaching = threading.Lock()
reset_after_fork(sys.modules[__name__], "_attaching", threading.Lock)


def attach(folder: str) -> Device:
    """Return this process's only view of the storage in `folder`.

    Raises:
        FileNotFoundError: If the process that created the storage has ended.
    """
    with _attaching:
        if folder not in _attached:
            _attached[folder] = Device(SharedState(folder))
        return _attached[folder]


def _cache_units(preset: StoragePreset) -> int:
    """Return the size of the page cache in units: 0, or at least one block."""
    units = int(preset.cache_mb * 1e6) // UNIT
    return max(units, BLOCK // UNIT) if preset.cache_mb else 0
