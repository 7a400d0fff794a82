"""Find out where compression pays: on slow storage it does, on fast storage it does not.

    table = compare_codecs(cu.data_path("events"))
    table  # how small, how fast, and below which bandwidth it pays
    table.picture()

Reading n bytes at bandwidth B takes n / B. Compressed to 1 / r of that and decoded at speed D, one
after the other, it takes n / (r B) + n / D. The two are equal at B = D (1 - 1 / r).
"""

import timeit
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
from matplotlib.figure import Figure

from course_stories.figures import drawing
from course_stories.formats_compared import shown
from course_utils.hardware.machine import facts as machine_facts
from course_utils.hardware.storage import StoragePreset, VirtualClock, slow_storage, storage_preset
from course_utils.loading.events import read_labels
from keepfed.words import duration

CODECS = ("gzip", "zstd", "lz4")
PRESETS = ("laptop SSD", "NFS")
MOST = 8_000_000  # bytes of pulses; more take longer and say the same
BLOCK = 2**18  # bytes that are compressed, and later read, at a time
_RANGE = 10, 10_000  # MB/s: from Wi-Fi to a fast SSD
_STROKES = ("-", "--", ":")
_NOTE = (
    "Below its crossover a codec pays, above it does not. It is decoding speed × (1 − 1 / ratio) "
    "for one core that reads and then decodes; the more cores decode, the higher it lies. Times "
    "are those of emulated reading and of measured decoding."
)


@dataclass(frozen=True)
class CodecRow:
    """What a codec costs, or no codec."""

    ratio: float  # bytes before for each byte after
    decode_mb_s: float  # 10^6 bytes of pulses that one core gets out of it per second
    # to read all blocks and then decode them, by storage: emulated time and measured computing
    seconds: Mapping[str, float]

    @property
    def crossover_mb_s(self) -> float:
        """The bandwidth in MB/s below which compression pays and above which it does not."""
        return max(0.0, self.decode_mb_s * (1 - 1 / self.ratio))

    def cost_at(self, mb_s: float) -> float:
        """Return how many times as long as raw data it takes at a bandwidth in MB/s."""
        return 1 / self.ratio + mb_s / self.decode_mb_s


@dataclass(frozen=True)
class CompressionTable:
    """What each codec costs, by its name, "raw" data first; it draws itself."""

    rows: Mapping[str, CodecRow]
    bandwidths: Mapping[str, float]  # in MB/s, of each emulated storage
    megabytes: float  # 10^6 bytes, raw
    machine: str

    def ratio(self, name: str, storage: str) -> float:
        """Return how many times as long as raw data a codec takes on an emulated storage."""
        return self.rows[name].seconds[storage] / self.rows["raw"].seconds[storage]

    def picture(self) -> Figure:
        """Draw the time relative to raw data over the bandwidth; where it is 1, they cross."""
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
            panel.set_xlabel("bandwidth of the storage in MB/s")
            panel.set_ylabel("times as long as raw data")
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
    """Compress pulses in blocks, read and decode them, and return what that costs.

    Args:
        folder: events as make_events writes them.
        presets: storages to emulate.

    Raises:
        FileNotFoundError: the folder holds no events.
    """
    read_labels(folder)  # says it in words where there are no events
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

        decode_s = min(timeit.repeat(decode, number=1))  # only other programs make it take longer
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
    """Return the emulated seconds; what the emulation itself computes does not count."""
    fs = slow_storage(path.parent, preset)
    clock = VirtualClock(fs, computing=lambda: 0)
    with fs.open(path.name) as file:
        for length in lengths:
            file.read(length)
    return clock.waited / 1e9
