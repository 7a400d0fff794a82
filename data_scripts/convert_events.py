"""Write events in more file formats, or take in the public IceCube data.

    python -m data_scripts.convert_events data/events-L --to npz
    python -m data_scripts.convert_events data/icecube --kaggle DOWNLOADED --batches 1 2

The second form makes data/icecube out of the files of the Kaggle competition "IceCube - Neutrinos
in Deep Ice": train_meta.parquet, train/batch_N.parquet and sensor_geometry.csv.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from course_utils.errors import CourseError
from data_scripts import files, kaggle, native
from data_scripts.command import check, guarded
from data_scripts.formats import FORMATS


def main(argv: Sequence[str] | None = None) -> int:
    """Convert as the arguments say and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="events to convert, or to make with --kaggle")
    parser.add_argument("--to", nargs="+", choices=FORMATS, default=[], help="formats to add")
    parser.add_argument(
        "--kaggle", type=Path, metavar="PATH", help="public IceCube data to take in"
    )
    parser.add_argument("--batches", nargs="+", type=int, help="only these batches (default: all)")
    return guarded(lambda: _run(parser.parse_args(argv)))


def add_formats(folder: Path, names: Sequence[str]) -> None:
    """Write the named formats beside the events in `folder`, unless they are there.

    Raises:
        CourseError: the folder holds no whole data set, or there is too little room.
    """
    with files.locked(folder):
        manifest = files.read_manifest(folder)
        if manifest is None:
            raise CourseError(f"{folder} holds no whole events; run make_events first.")
        missing = [name for name in names if FORMATS[name].name not in manifest["sizes"]]
        for name in names:
            if name not in missing:
                print(f"{folder / FORMATS[name].name}: already there.")
        if missing:
            check(
                folder
            )  # else a corrupted file would be converted, and sealed as if it were whole
        for name in missing:
            _add(folder, name)


def _add(folder: Path, name: str) -> None:
    start = time.perf_counter()
    events = native.load(folder)
    entry, write = FORMATS[name]
    room = 2 * events.pulses.nbytes + 8192 * len(events)
    files.add_entry(folder, entry, lambda path: write(events, path), room=room)
    print(f"{folder / entry}: {len(events):,} events in {time.perf_counter() - start:.0f} s.")


def _from_kaggle(folder: Path, source: Path, batches: Sequence[int] | None) -> None:
    with files.locked(folder):
        if files.read_manifest(folder) is not None:
            print(f"{folder}: already there.")
            return
        start = time.perf_counter()
        meta = kaggle.read_meta(source, batches)
        files.make_folder(
            folder,
            lambda empty: kaggle.build(empty, source, meta),
            facts={"data": "events", "source": "IceCube, Kaggle"},
            room=kaggle.room(meta),
        )
    print(f"{folder}: {len(meta):,} events in {time.perf_counter() - start:.0f} s.")


def _run(arguments: argparse.Namespace) -> None:
    if arguments.kaggle:
        _from_kaggle(arguments.folder, arguments.kaggle, arguments.batches)
    add_formats(arguments.folder, arguments.to)


if __name__ == "__main__":
    sys.exit(main())
