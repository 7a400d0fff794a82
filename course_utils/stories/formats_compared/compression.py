"""Measure when compression pays: on slow storage it does, on fast storage it does not.

    codecs = compare_codecs(cu.data_path("events"))
    codecs["zstd"].cost_at(BANDWIDTHS["emulated NFS"])

Reading n bytes at bandwidth B takes n / B. If they are compressed to n / r bytes and then decoded
at speed D, it takes n / (r B) + n / D. Both times are equal at B = D (1 - 1 / r).
"""

import timeit
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from course_utils.hardware.storage import storage_preset
from course_utils.loading.events import read_labels

CODECS = ("gzip", "zstd", "lz4")
BANDWIDTHS = {  # MB/s
    f"emulated {name}": storage_preset(name).stream_mb_s for name in ("laptop SSD", "NFS")
}
MOST = 8_000_000  # bytes of pulses, as more give the same result
BLOCK = 2**18  # bytes per compressed block


@dataclass(frozen=True)
class CodecCost:
    """The cost of one codec, for one core that reads and then decodes."""

    ratio: float  # raw bytes per compressed byte
    decode_mb_s: float  # decoding speed of one core, in MB of raw data per second

    @property
    def crossover_mb_s(self) -> float:
        """Bandwidth in MB/s below which the codec is faster than raw data."""
        return max(0.0, self.decode_mb_s * (1 - 1 / self.ratio))

    def cost_at(self, mb_s: Any) -> Any:
        """Return the time relative to raw data at a bandwidth in MB/s, or at several."""
        return 1 / self.ratio + mb_s / self.decode_mb_s

    def __str__(self) -> str:
        return (
            f"{1 / self.ratio:.2f} of the size, decoding {self.decode_mb_s:,.0f} MB/s, pays below "
            f"{self.crossover_mb_s:,.0f} MB/s"
        )


def compare_codecs(folder: str | Path) -> dict[str, CodecCost]:
    """Compress the pulses of `folder` in blocks, decode them, and return the costs by name.

    Raises:
        FileNotFoundError: If the folder holds no events.
    """
    read_labels(folder)  # raises a clear error if there are no events
    pulses = np.load(Path(folder) / "npy/pulses.npy", mmap_mode="r")
    content = pulses.reshape(-1)[: MOST // 4].tobytes()
    blocks = [content[start : start + BLOCK] for start in range(0, len(content), BLOCK)]
    return {name: _cost(pa.Codec(name), blocks) for name in CODECS}


def _cost(codec: pa.Codec, blocks: Sequence[bytes]) -> CodecCost:
    stored = [codec.compress(block, asbytes=True) for block in blocks]

    def decode() -> None:
        for compressed, block in zip(stored, blocks, strict=True):
            codec.decompress(compressed, decompressed_size=len(block))

    size = sum(map(len, blocks))
    seconds = min(timeit.repeat(decode, number=1))  # other programs can only slow it down
    return CodecCost(size / sum(map(len, stored)), size / 1e6 / seconds)
