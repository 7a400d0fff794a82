"""Let several nodes read at once, from one shared storage or each from its own, in virtual time."""

import heapq
from pathlib import Path

from course_utils.hardware.storage import VirtualClock, slow_storage

PIECE = 8_000_000  # bytes that a node asks for at a time, as one who reads shards does


def node_rates(
    preset: str, nodes: int, *, shared: bool, event_bytes: float, pieces: int = 40
) -> float:
    """Return the events per second that all nodes together get while they read.

    Each node asks for its next piece when the last one has arrived. Nobody waits for it: the
    storage is asked when it would deliver, and the time moves there.

    Args:
        preset: storage, such as "busy Lustre"; without its page cache.
        nodes: how many read.
        shared: whether they share one such storage; otherwise each has its own.
        event_bytes: mean size of an event.
        pieces: how often each node asks.
    """
    clock = VirtualClock()
    devices = []
    for _ in range(1 if shared else nodes):
        devices.append(slow_storage(Path.cwd(), preset, cache_mb=0).device)
        devices[-1].clock = clock
    asking = [(0, node, 0) for node in range(nodes)]  # when, who, for which piece
    while asking:
        now, node, piece = heapq.heappop(asking)
        clock.sleep_until(now)
        if piece < pieces:
            start = piece * PIECE
            device = devices[node % len(devices)]
            done = device.reserve(node, start, start + PIECE, size=pieces * PIECE)
            heapq.heappush(asking, (done, node, piece + 1))
    return nodes * pieces * PIECE / event_bytes / (clock() / 1e9)
