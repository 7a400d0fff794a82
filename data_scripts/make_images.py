"""Create JPEG images in class folders: random crops of scikit-image's photographs.

    python -m data_scripts.make_images --size M
    python -m data_scripts.make_images --size M --check

The photographs are files of the installed scikit-image. Nothing is downloaded. Each photograph is
one class, and class sizes differ, as in real collections: images-M/cat/00012.jpg. The same seed
gives the same bytes as long as scikit-image and Pillow stay the same.
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from PIL import Image
from tqdm import tqdm

from course_utils.errors import CourseError
from data_scripts import files
from data_scripts.command import DatasetScript

SIDE = 256
QUALITY = 90
CLASSES = {  # name -> photograph of scikit-image, share of the images
    "cat": ("chelsea.png", 0.30),
    "coffee": ("coffee.png", 0.22),
    "motorcycle": ("motorcycle_left.png", 0.16),
    "astronaut": ("astronaut.png", 0.12),
    "rocket": ("rocket.jpg", 0.08),
    "galaxies": ("hubble_deep_field.jpg", 0.06),
    "tissue": ("ihc.png", 0.04),
    "retina": ("retina.jpg", 0.02),
}


def build(folder: Path, size: str, seed: int) -> files.Facts:
    """Fill an empty folder with one folder of images per class."""
    counts = class_counts(SCRIPT.counts[size])
    photographs = {name: read_photograph(name) for name in counts}
    for name in counts:
        (folder / name).mkdir()
    jobs = [(name, index) for name, count in counts.items() for index in range(count)]
    cut = partial(_cut, folder, photographs, seed)
    with ThreadPoolExecutor() as pool, tqdm(total=len(jobs), unit="image", disable=None) as bar:
        for _ in pool.map(cut, jobs):
            bar.update()
    return {"counts": counts}


def class_counts(total: int) -> dict[str, int]:
    """Return the number of images of each class. The classes differ in size on purpose."""
    shares = [share for _, share in CLASSES.values()]
    borders = np.rint(np.cumsum([0, *shares]) * total).astype(int)
    return dict(zip(CLASSES, np.diff(borders).tolist(), strict=True))


def read_photograph(name: str) -> Image.Image:
    """Return the photograph of one class."""
    package, file = find_spec("skimage"), CLASSES[name][0]
    path = Path(package.origin or "").parent / "data" / file if package else None
    if path is None or not path.is_file():
        raise CourseError(f"scikit-image has no {file} here. Run `pip install scikit-image`.")
    with Image.open(path) as photograph:
        return photograph.convert("RGB")


def _cut(
    folder: Path, photographs: dict[str, Image.Image], seed: int, job: tuple[str, int]
) -> None:
    """Write one random crop, with its own seed, so that the order of threads is irrelevant."""
    name, index = job
    photograph = photographs[name]
    rng = np.random.default_rng([seed, list(CLASSES).index(name), index])
    side = rng.uniform(0.4, 1.0) * min(photograph.size)
    left, top = rng.uniform(0, 1, 2) * (np.array(photograph.size) - side)
    box = (left, top, left + side, top + side)
    crop = photograph.resize((SIDE, SIDE), Image.Resampling.BICUBIC, box)
    if rng.random() < 0.5:
        crop = crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    crop.save(folder / name / f"{index:05d}.jpg", quality=QUALITY)


SCRIPT = DatasetScript(
    name="images",
    version=1,
    counts={"S": 200, "M": 2_000, "L": 20_000},
    bytes_each=dict.fromkeys("SML", 25_000),
    seconds={"S": 2, "M": 7, "L": 53},
    build=build,
    usage=__doc__,
)
main = SCRIPT.main

if __name__ == "__main__":
    sys.exit(main())
