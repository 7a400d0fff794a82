"""Create 3-D volumes, the matter density of a toy universe, in three file formats each.

    python -m data_scripts.make_volumes --size M
    python -m data_scripts.make_volumes --size M --check

Volume 000 is in 000.npz, 000.npy and 000.h5 (dataset `volume`, contiguous), as float32 (z, y, x)
with mean 1. volumes.json contains the shape of each volume and a CRC-32 of its values, because .npy
and HDF5 files have no checksum. One plane of the larger volumes is 256 KiB, and the largest has 600
planes. The same seed gives the same arrays as long as numpy stays the same.
"""

import json
import sys
from pathlib import Path
from zlib import crc32

import h5py
import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from data_scripts import files
from data_scripts.command import DatasetScript

Shape = tuple[int, int, int]
_SMALL, _MEDIUM, _LARGE = (128, 128, 128), (128, 256, 256), (600, 256, 256)  # 8, 32, 150 MiB
SHAPES: dict[str, tuple[Shape, ...]] = {
    "S": (_SMALL,) * 2,
    "M": (_SMALL, _MEDIUM, _LARGE),
    "L": (_LARGE,) * 8,
}
CONTRAST = 1.0  # standard deviation of the logarithm of the density


def build(folder: Path, size: str, seed: int) -> files.Facts:
    """Fill an empty folder with the volumes of `size` in their three formats."""
    facts = {}
    for index, shape in enumerate(tqdm(SHAPES[size], unit="volume", disable=None)):
        name = f"{index:03d}"
        volume = density(shape, np.random.default_rng([seed, index]))
        np.savez(folder / f"{name}.npz", volume=volume)
        np.save(folder / f"{name}.npy", volume)
        with h5py.File(folder / f"{name}.h5", "w") as file:
            file["volume"] = volume
        facts[name] = {"shape": shape, "crc32": crc32(volume.data)}
    text = json.dumps(facts, indent=2) + "\n"
    (folder / "volumes.json").write_text(text, encoding="utf-8", newline="\n")
    return {"shapes": SHAPES[size]}


def density(shape: Shape, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return a log-normal density with mean 1, with clumps, filaments and voids.

    One inverse Fourier transform adds random waves. Their power falls with the third power of the
    wave number k, so that structures of all sizes are equally visible.
    """
    z, y, x = shape
    waves = rng.standard_normal((z, y, x // 2 + 1, 2), np.float32).view(np.complex64)[..., 0]
    k2 = np.fft.fftfreq(z)[:, None, None] ** 2 + np.fft.fftfreq(y)[:, None] ** 2
    k2 = (k2 + np.fft.rfftfreq(x) ** 2).astype(np.float32)
    k2[0, 0, 0] = np.inf  # removes the constant
    waves *= k2**-0.75
    field = np.fft.irfftn(waves, shape, axes=(0, 1, 2)).astype(np.float32, copy=False)
    field *= CONTRAST / field.std()
    np.exp(field, out=field)
    field /= field.mean(dtype=np.float64)
    return field


def _bytes_each(size: str) -> int:
    """Return the bytes of one volume in all formats, rounded up."""
    values = sum(z * y * x for z, y, x in SHAPES[size])
    return 3 * 4 * values // len(SHAPES[size]) + 100_000


SCRIPT = DatasetScript(
    name="volumes",
    version=1,
    counts={size: len(shapes) for size, shapes in SHAPES.items()},
    bytes_each={size: _bytes_each(size) for size in SHAPES},
    seconds={"S": 1, "M": 4, "L": 18},
    build=build,
    usage=__doc__,
)
main = SCRIPT.main

if __name__ == "__main__":
    sys.exit(main())
