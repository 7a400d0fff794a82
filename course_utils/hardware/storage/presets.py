"""Presets of the emulated storages; `presets.toml` contains the figures and their sources."""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class StoragePreset:
    """Figures of one storage. MB are 10^6 bytes."""

    name: str
    open_ms: float  # one look-up of a file: open, size, directory
    opens_per_s: float  # all processes together
    request_ms: float  # from the request to the first byte
    requests_at_once: int  # further requests queue
    mb_s: float  # all requests together
    stream_mb_s: float  # one request alone
    readahead: bool  # a read that continues an earlier one skips request_ms
    cache_mb: float  # page cache of the reading machine; 0 for none
    ranges: int = 1  # byte ranges of a file in one request, if more than 1 a vector read

    def __str__(self) -> str:
        cache = f"page cache of {self.cache_mb:,.0f} MB" if self.cache_mb else "no page cache"
        return (
            f"emulated {self.name} ({self.request_ms:g} ms a request, {self.requests_at_once} at "
            f"once, {self.mb_s:,.0f} MB/s, {self.open_ms:g} ms an open, {cache})"
        )


_FILE = Path(__file__).with_name("presets.toml")
PRESETS = {
    name: StoragePreset(name=name, **figures)
    for name, figures in tomllib.loads(_FILE.read_text("utf-8")).items()
}

# Storage without limits; `dataclasses.replace` slows down only the part that a lesson is about.
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
)


def storage_preset(preset: str | StoragePreset) -> StoragePreset:
    """Return the preset with this name. A `StoragePreset` is returned unchanged.

    Raises:
        ValueError: If there is no such preset.
    """
    if isinstance(preset, StoragePreset):
        return preset
    if preset not in PRESETS:
        raise ValueError(f"There is no storage {preset!r}. Choose one of {', '.join(PRESETS)}.")
    return PRESETS[preset]
