"""Measure when compression pays: on slow storage it does, on fast storage it does not.

    table = compare_codecs(cu.data_path("events"))
    table  # size, speed, and the bandwidth below which each codec pays
    table.picture()

Reading n bytes at bandwidth B takes n / B. If they are compressed to n / r bytes and then decoded
at speed D, it takes n / (r B) + n / D. Both times are equal at B = D (1 - 1 / r).
"""

import timeit
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from matplotlib.figure import Figure

from course_utils.hardware.machine import facts as machine_facts
from course_utils.hardware.storage import storage_preset
from course_utils.loading.events import read_labels
from course_utils.stories.figures import drawing
from course_utils.stories.formats_compared import shown

CODECS = ("gzip", "zstd", "lz4")
BANDWIDTHS = {  # MB/s
    f"emulated {name}": storage_preset(name).stream_mb_s for name in ("laptop SSD", "NFS")
}
MOST = 8_000_000  # bytes of pulses, as more give the same result
BLOCK = 2**18  # bytes per compressed block
_RANGE = 10, 10_000  # MB/s: from Wi-Fi to a fast SSD
_NOTE = (
    "A codec pays if the bandwidth is below its crossover, which is decoding speed × (1 − 1 / "
    "ratio) for one core that reads and then decodes. More cores raise the crossover."
)


@dataclass(frozen=True)
class CodecCost:
    """The cost of one codec."""

    ratio: float  # raw bytes per compressed byte
    decode_mb_s: float  # decoding speed of one core, in MB of raw data per second

    @property
    def crossover_mb_s(self) -> float:
        """Bandwidth in MB/s below which the codec is faster than raw data."""
        return max(0.0, self.decode_mb_s * (1 - 1 / self.ratio))

    def cost_at(self, mb_s: Any) -> Any:
        """Return the time relative to raw data at a bandwidth in MB/s, or at several."""
        return 1 / self.ratio + mb_s / self.decode_mb_s


@dataclass(frozen=True)
class CompressionTable:
    """The cost of each codec by name, with an HTML view and a figure."""

    codecs: Mapping[str, CodecCost]
    megabytes: float  # size of the raw data, in 10^6 bytes
    machine: str

    def ratio(self, name: str, storage: str) -> float:
        """Return the time of a codec relative to raw data, on a storage of `BANDWIDTHS`."""
        return float(self.codecs[name].cost_at(BANDWIDTHS[storage]))

    def picture(self) -> Figure:
        """Draw the time relative to raw data over the bandwidth."""
        bandwidths = np.geomspace(*_RANGE, 100)
        with drawing(7, 4, title=repr(self)) as (figure, (panel,)):
            panel.axhline(1, color="gray", linewidth=1)
            panel.annotate("raw", (_RANGE[0], 1), (4, 4), textcoords="offset points", color="gray")
            lines = zip(self.codecs.items(), ("-", "--", ":"), shown.COLOURS, strict=False)
            for (name, codec), stroke, colour in lines:
                label = f"{name}: up to {codec.crossover_mb_s:,.0f} MB/s"
                panel.plot(bandwidths, codec.cost_at(bandwidths), stroke, color=colour, label=label)
            for storage, mb_s in BANDWIDTHS.items():
                panel.axvline(mb_s, color="gray", linewidth=0.5)
                panel.text(mb_s, 1.01, storage, ha="center", transform=panel.get_xaxis_transform())
            panel.set(xscale="log", yscale="log", xlim=_RANGE)
            panel.set_xlabel("bandwidth of the storage in MB/s (log)")
            panel.set_ylabel("time relative to raw data (log)")
            panel.legend(frameon=False)
        return figure

    def __repr__(self) -> str:
        return f"{self.megabytes:,.1f} MB of pulses · {self.machine}"

    def _repr_html_(self) -> str:
        rows = []
        for name, codec in self.codecs.items():
            speeds = (f"{mb_s:,.0f} MB/s" for mb_s in (codec.decode_mb_s, codec.crossover_mb_s))
            times = (f"{self.ratio(name, storage):.2f}×" for storage in BANDWIDTHS)
            rows.append([name, f"{1 / codec.ratio:.2f}×", *speeds, *times])
        head = ["codec", "size", "decoding", "crossover", *BANDWIDTHS]
        return shown.page(repr(self), shown.table(head, rows), _NOTE)


def compare_codecs(folder: str | Path) -> CompressionTable:
    """Compress the pulses of `folder` in blocks, decode them, and return the costs.

    Raises:
        FileNotFoundError: If the folder holds no events.
    """
    read_labels(folder)  # raises a clear error if there are no events
    pulses = np.load(Path(folder) / "npy/pulses.npy", mmap_mode="r")
    content = pulses.reshape(-1)[: MOST // 4].tobytes()
    blocks = [content[start : start + BLOCK] for start in range(0, len(content), BLOCK)]
    costs = {name: _cost(pa.Codec(name), blocks) for name in CODECS}
    return CompressionTable(costs, len(content) / 1e6, machine_facts.stamp())


def _cost(codec: pa.Codec, blocks: Sequence[bytes]) -> CodecCost:
    stored = [codec.compress(block, asbytes=True) for block in blocks]

    def decode() -> None:
        for compressed, block in zip(stored, blocks, strict=True):
            codec.decompress(compressed, decompressed_size=len(block))

    size = sum(map(len, blocks))
    seconds = min(timeit.repeat(decode, number=1))  # other programs can only slow it down
    return CodecCost(size / sum(map(len, stored)), size / 1e6 / seconds)
