"""What an object store counts, and under which name it tells."""

from __future__ import annotations

from dataclasses import dataclass

COUNTERS = ".counters"


@dataclass(frozen=True)
class StoreCounters:
    """What a store was asked for with the right token, and what it did."""

    requests: int = 0  # GET of a file, whole or in part
    lookups: int = 0  # HEAD, and listings of a folder
    bytes_sent: int = 0  # of files; a client that went away may have got up to 64 KiB fewer
    broken: int = 0  # connections broken on purpose
    connections: int = 0  # open now, those that asked for something

    def __str__(self) -> str:
        return (
            f"{self.requests:,} request{'s' * (self.requests != 1)}, "
            f"{self.lookups:,} look-up{'s' * (self.lookups != 1)}, "
            f"{self.bytes_sent / 1e6:,.1f} MB sent, {self.broken:,} broken off"
        )
