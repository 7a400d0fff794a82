"""What the emulated storages are like: a few figures each, and where each figure comes from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

_SAMSUNG = "Samsung 970 EVO Plus 1 TB data sheet"
_WD = "Western Digital Ultrastar DC HC310 specification, section 4.5"
_S3 = "docs.aws.amazon.com/AmazonS3/latest/userguide"
_CACHE = "typical: what is left of the memory; scaled down as the data of the course are"


@dataclass(frozen=True, kw_only=True)
class StoragePreset:
    """The figures of one storage. MB are 10^6 bytes.

    `sources` says for each figure whether it is specified somewhere or typical, and why. Typical
    figures are our judgement: change them with `dataclasses.replace` to fit your own storage. Those
    from memory are specified in the place named, as far as we remember; that was not verified.
    """

    name: str
    open_ms: float  # one look-up of a file: open, size, directory
    opens_per_s: float  # all processes together
    request_ms: float  # from asking to the first byte
    requests_at_once: int  # further requests queue
    mb_s: float  # all requests together
    stream_mb_s: float  # one request alone
    readahead: bool  # a read that continues an earlier one pays no request_ms
    cache_mb: float  # page cache of the machine that reads; 0 for none
    sources: Mapping[str, str]

    def __str__(self) -> str:
        cache = f"page cache of {self.cache_mb:,.0f} MB" if self.cache_mb else "no page cache"
        return (
            f"emulated {self.name} ({self.request_ms:g} ms a request, {self.requests_at_once} at "
            f"once, {self.mb_s:,.0f} MB/s, {self.open_ms:g} ms an open, {cache})"
        )


def storage_preset(name: str) -> StoragePreset:
    """Return the preset of that name.

    Raises:
        ValueError: there is none.
    """
    if name not in PRESETS:
        raise ValueError(f"There is no storage {name!r}; choose one of {', '.join(PRESETS)}.")
    return PRESETS[name]


_ALL = (
    StoragePreset(
        name="laptop SSD",
        open_ms=0.05,
        opens_per_s=20_000,
        request_ms=0.053,
        requests_at_once=32,
        mb_s=3_500,
        stream_mb_s=3_500,
        readahead=True,
        cache_mb=1_000,
        sources={
            "open_ms": "typical: the inode is one more small read",
            "opens_per_s": "typical: one inode after the other at open_ms",
            "request_ms": f"specified: {_SAMSUNG}, 19,000 random reads/s at depth 1",
            "requests_at_once": f"specified: {_SAMSUNG}, 600,000 random reads/s at depth 32",
            "mb_s": f"specified: {_SAMSUNG}, sequential read",
            "stream_mb_s": "specified: as mb_s",
            "cache_mb": _CACHE,
        },
    ),
    StoragePreset(
        name="HDD",
        open_ms=11.6,
        opens_per_s=86,
        request_ms=11.6,
        requests_at_once=1,
        mb_s=200,
        stream_mb_s=200,
        readahead=True,
        cache_mb=1_000,
        sources={
            "open_ms": "typical: the inode is one more seek",
            "opens_per_s": "typical: one seek after the other",
            "request_ms": f"from memory: {_WD}: seek 7.4 ms, half a turn at 7,200 rpm 4.16 ms",
            "requests_at_once": "typical: there is one arm",
            "mb_s": "typical: 7,200 rpm drives give 150 to 250 MB/s from inner to outer tracks",
            "stream_mb_s": "typical: as mb_s",
            "cache_mb": _CACHE,
        },
    ),
    StoragePreset(
        name="NFS",
        open_ms=2,
        opens_per_s=2_000,
        request_ms=1,
        requests_at_once=64,
        mb_s=117,
        stream_mb_s=117,
        readahead=True,
        cache_mb=1_000,
        sources={
            "open_ms": "typical: two round trips, look-up and open",
            "opens_per_s": "typical: a departmental server",
            "request_ms": "typical: a round trip in a gigabit LAN and the server's page cache",
            "requests_at_once": "specified: Linux fs/nfs/nfs4session.h, NFS4_DEF_SLOT_TABLE_SIZE",
            "mb_s": "specified: gigabit Ethernet less the headers of 1,500-byte frames",
            "stream_mb_s": "specified: as mb_s",
            "cache_mb": _CACHE,
        },
    ),
    StoragePreset(
        name="busy Lustre",
        open_ms=5,
        opens_per_s=1_000,
        request_ms=10,
        requests_at_once=8,
        mb_s=500,
        stream_mb_s=500,
        readahead=True,
        cache_mb=1_000,
        sources={
            "open_ms": "typical: the metadata server is shared with the whole cluster",
            "opens_per_s": "typical: one client's share of a busy metadata server",
            "request_ms": "typical: disks behind the server that other jobs keep busy",
            "requests_at_once": "from memory: max_rpcs_in_flight of Lustre, 8 for each server disk",
            "mb_s": "typical: one client's share of a file that lies on one server disk",
            "stream_mb_s": "typical: as mb_s",
            "cache_mb": _CACHE,
        },
    ),
    StoragePreset(
        name="S3",
        open_ms=50,
        opens_per_s=5_500,
        request_ms=100,
        requests_at_once=64,
        mb_s=1_250,
        stream_mb_s=85,
        readahead=False,
        cache_mb=0,
        sources={
            "open_ms": "typical: the HEAD request that asks for the size",
            "opens_per_s": f"specified: {_S3}/optimizing-performance.html, per prefix",
            "request_ms": f"specified: {_S3}/optimizing-performance.html, first byte 100 to 200 ms",
            "requests_at_once": "typical: connections that a client keeps open",
            "mb_s": "specified: network interface of 10 Gb/s",
            "stream_mb_s": f"from memory: {_S3}/optimizing-performance-design-patterns.html, 85-90",
            "cache_mb": "specified: an HTTP client goes past the page cache",
        },
    ),
)
PRESETS = {preset.name: preset for preset in _ALL}

# For `dataclasses.replace`: a storage of which nothing is slow but what a lesson is about.
UNLIMITED = StoragePreset(
    name="storage",
    open_ms=0,
    opens_per_s=math.inf,
    request_ms=0,
    requests_at_once=1_024,
    mb_s=math.inf,
    stream_mb_s=math.inf,
    readahead=False,
    cache_mb=0,
    sources={},
)
