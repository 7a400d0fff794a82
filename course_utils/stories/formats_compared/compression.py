"""Measure when compression pays: on slow storage it does, on fast storage it does not.

    table = compare_codecs(cu.data_path("events"))
    table  # size, speed, and the bandwidth below which each codec pays
    table.picture()

Reading n bytes at bandwidth B takes n / B. If they are compressed to n / r bytes and then decoded
at speed D, it takes n / (r B) + n / D. Both times are equal at B = D (1 - 1 / r).
"""

import timeit
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
from matplotlib.figure import Figure

from course_utils.hardware.machine import facts as machine_facts
from course_utils.hardware.storage import StoragePreset, VirtualClock, slow_storage, storage_preset
from course_utils.loading.events import read_labels
from course_utils.stories.figures import drawing
from course_utils.stories.formats_compared import shown
from keepfed.formatting import duration

CODECS = ("gzip", "zstd", "lz4")
PRESETS = ("laptop SSD", "NFS")
MOST = 8_000_000  # bytes of pulses, as more give the same result
BLOCK = 2**18  # bytes per compressed block
_RANGE = 10, 10_000  # MB/s: from Wi-Fi to a fast SSD
_STROKES = ("-", "--", ":")
_NOTE = (
    "A codec pays if the bandwidth is below its crossover, which is decoding speed × (1 − 1 / "
    "ratio) for one core that reads and then decodes. More cores raise the crossover. Times "
    "combine emulated reading and measured decoding."
)


@dataclass(frozen=True)
class CodecRow:
    """The cost of one codec, or of raw data."""

    ratio: float  # raw bytes per compressed byte
    decode_mb_s: float  # decoding speed of one core, in MB of raw data per second
    # time to read and decode all blocks, by storage: emulated reading, measured decoding
    seconds: Mapping[str, float]

    @property
    def crossover_mb_s(self) -> float:
        """Bandwidth in MB/s below which the codec is faster than raw data."""
        return max(0.0, self.decode_mb_s * (1 - 1 / self.ratio))

    def cost_at(self, mb_s: float) -> float:
        """Return the time relative to raw data at a bandwidth in MB/s."""
        return 1 / self.ratio + mb_s / self.decode_mb_s


@dataclass(frozen=True)
class CompressionTable:
    """The cost of each codec by name, "raw" first, with an HTML view and a figure."""

    rows: Mapping[str, CodecRow]
    bandwidths: Mapping[str, float]  # MB/s of each emulated storage
    megabytes: float  # size of the raw data, in 10^6 bytes
    machine: str

    def ratio(self, name: str, storage: str) -> float:
        """Return the time of a codec relative to raw data on an emulated storage."""
        return self.rows[name].seconds[storage] / self.rows["raw"].seconds[storage]

    def picture(self) -> Figure:
        """Draw the time relative to raw data over the bandwidth."""
        bandwidths = np.geomspace(*_RANGE, 100).tolist()
        with drawing(7, 4, title=repr(self)) as (figure, (panel,)):
            panel.axhline(1, color="gray", linewidth=1)
            panel.annotate("raw", (_RANGE[0], 1), (4, 4), textcoords="offset points", color="gray")
            for name, stroke, colour in zip(CODECS, _STROKES, shown.COLOURS, strict=False):
                row = self.rows[name]
                label = f"{name}: up to {row.crossover_mb_s:,.0f} MB/s"
                costs = [row.cost_at(mb_s) for mb_s in bandwidths]
                panel.plot(bandwidths, costs, stroke, color=colour, label=label)
                for storage, mb_s in self.bandwidths.items():
                    panel.plot(mb_s, self.ratio(name, storage), "o", color=colour)
            for storage, mb_s in self.bandwidths.items():
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
        head = ["codec", "size", "decoding", "crossover", *self.bandwidths]
        return shown.page(repr(self), shown.table(head, self._cells()), _NOTE)

    def _cells(self) -> Iterator[list[str]]:
        for name, row in self.rows.items():
            speeds = [f"{mb_s:,.0f} MB/s" for mb_s in (row.decode_mb_s, row.crossover_mb_s)]
            times = [
                f"{self.ratio(name, storage):.2f}× {duration(1e9 * seconds)}"
                for storage, seconds in row.seconds.items()
            ]
            yield [name, f"{1 / row.ratio:.2f}×", *(speeds if name in CODECS else ["", ""]), *times]


def compare_codecs(
    folder: str | Path, *, presets: Sequence[str | StoragePreset] = PRESETS
) -> CompressionTable:
    """Compress pulses in blocks, read and decode them, and return the costs.

    Args:
        folder: events as make_events writes them.
        presets: storages to emulate.

    Raises:
        FileNotFoundError: If the folder holds no events.
    """
    read_labels(folder)  # raises a clear error if there are no events
    pulses = np.load(Path(folder) / "npy/pulses.npy", mmap_mode="r")
    content = pulses.reshape(-1)[: MOST // 4].tobytes()
    blocks = [content[start : start + BLOCK] for start in range(0, len(content), BLOCK)]
    figures = list(map(storage_preset, presets))
    with TemporaryDirectory() as place:
        rows = {name: _row(name, blocks, Path(place), figures) for name in ("raw", *CODECS)}
    bandwidths = {f"emulated {each.name}": each.stream_mb_s for each in figures}
    return CompressionTable(rows, bandwidths, len(content) / 1e6, machine_facts.stamp())


def _row(
    name: str, blocks: Sequence[bytes], folder: Path, presets: Sequence[StoragePreset]
) -> CodecRow:
    size, stored, decode_s = sum(map(len, blocks)), blocks, 0.0
    if name in CODECS:
        codec = pa.Codec(name)
        stored = [codec.compress(block, asbytes=True) for block in blocks]

        def decode() -> None:
            for compressed, block in zip(stored, blocks, strict=True):
                codec.decompress(compressed, decompressed_size=len(block))

        decode_s = min(timeit.repeat(decode, number=1))  # other programs can only slow it down
    (folder / name).write_bytes(b"".join(stored))
    lengths = [len(block) for block in stored]
    return CodecRow(
        ratio=size / sum(lengths),
        decode_mb_s=size / 1e6 / decode_s if decode_s else float("inf"),
        seconds={
            f"emulated {preset.name}": _read_s(folder / name, lengths, preset) + decode_s
            for preset in presets
        },
    )


def _read_s(path: Path, lengths: Sequence[int], preset: StoragePreset) -> float:
    """Return the emulated seconds, without the CPU time of the emulation itself."""
    fs = slow_storage(path.parent, preset)
    clock = VirtualClock(fs, computing=lambda: 0)
    with fs.open(path.name) as file:
        for length in lengths:
            file.read(length)
    return clock.waited / 1e9
