"""Write events in more file formats, or import the public IceCube data.

    python -m data_scripts.convert_events data/events-L --to npz sqlite
    RAY_ADDRESS=node1:6379 python -m data_scripts.convert_events data/events-L --to tar --engine ray
    python -m data_scripts.convert_events data/icecube --kaggle DOWNLOADED --batches 1 2

The second form writes the same bytes on a Ray cluster, with the parts of a format in parallel. All
nodes must see the folder under the same path. Without RAY_ADDRESS, it joins or starts a cluster on
this machine. The third form creates data/icecube from files of the Kaggle competition "IceCube -
Neutrinos in Deep Ice": train_meta.parquet, train/batch_N.parquet and sensor_geometry.csv.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from course_utils.errors import CourseError
from course_utils.loading.events import CONVERTED, FORMATS, EventArrays
from data_scripts import files, kaggle
from data_scripts.command import check, guarded
from data_scripts.on_ray import Engine, ray_engine, write_here


def main(argv: Sequence[str] | None = None) -> int:
    """Convert as the arguments specify, and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="events to convert, or to create with --kaggle")
    parser.add_argument("--to", nargs="+", choices=CONVERTED, default=[], help="formats to add")
    parser.add_argument("--kaggle", type=Path, metavar="PATH", help="public IceCube data to import")
    parser.add_argument("--batches", nargs="+", type=int, help="only these batches (default: all)")
    parser.add_argument("--engine", choices=["here", "ray"], default="here", help="where to write")
    return guarded(lambda: _run(parser.parse_args(argv)))


def add_formats(folder: Path, names: Sequence[str], engine: Engine = write_here) -> None:
    """Write formats from CONVERTED next to the events in `folder`, unless they exist already.

    Raises:
        CourseError: If the folder contains no complete data set, or the disk has too little space.
    """
    with files.locked(folder):
        manifest = files.read_manifest(folder)
        if manifest is None:
            raise CourseError(
                f"{folder} does not contain a complete events data set. Run make_events first."
            )
        missing = []
        for name in names:
            if files.size_matches(folder, manifest, FORMATS[name].entry):
                print(f"{folder / FORMATS[name].entry}: already exists.")
            else:
                missing.append(name)
        if missing:
            # Otherwise corrupted data would be converted and get valid checksums.
            check(folder, but={FORMATS[name].entry for name in missing})
        for name in missing:
            _add(folder, name, engine)


def _add(folder: Path, name: str, engine: Engine) -> None:
    events, entry, start = EventArrays.load(folder), FORMATS[name].entry, time.perf_counter()
    room = 4 * events.pulses.nbytes + 8192 * len(events)
    files.add_entry(folder, entry, lambda path: engine(folder, name, path), room=room)
    seconds = time.perf_counter() - start
    megabytes = (files.read_manifest(folder) or {})["sizes"][entry] / 1e6
    print(f"{folder / entry}: {len(events):,} events, {megabytes:,.1f} MB, in {seconds:.1f} s.")


def _from_kaggle(folder: Path, source: Path, batches: Sequence[int] | None) -> None:
    with files.locked(folder):
        if files.read_manifest(folder) is not None:
            print(f"{folder}: already exists.")
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
    if arguments.engine == "ray":
        with ray_engine() as engine:
            add_formats(arguments.folder, arguments.to, engine)
    else:
        add_formats(arguments.folder, arguments.to)


if __name__ == "__main__":
    sys.exit(main())
