"""Walk through events some hundreds at a time, so that memory stays small and a bar moves."""

from collections.abc import Iterator

from tqdm import tqdm

from data_scripts.native import Events

EVENTS_AT_ONCE = 256


def blocks(
    events: Events, title: str, *, size: int = EVENTS_AT_ONCE
) -> Iterator[tuple[slice, slice]]:
    """Yield the next `size` events and their pulses, as slices."""
    with tqdm(total=len(events), desc=title, unit="event", disable=None) as bar:
        for first in range(0, len(events), size):
            last = min(first + size, len(events))
            yield slice(first, last), slice(*events.offsets[[first, last]])
            bar.update(last - first)
