"""Write events in more file formats.

    python -m data_scripts.convert_events data/events-L --to npz sqlite
    RAY_ADDRESS=node1:6379 python -m data_scripts.convert_events data/events-L --to tar --engine ray

The second form writes the same bytes on a Ray cluster, with the parts of a format in parallel. All
nodes must see the folder under the same path. Without RAY_ADDRESS, it joins or starts a cluster on
this machine.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from course_utils.errors import CourseError
from course_utils.loading.events import CONVERTED, FORMATS, EventArrays
from data_scripts import files
from data_scripts.command import check, guarded
from data_scripts.on_ray import Engine, ray_engine, write_here


def main(argv: Sequence[str] | None = None) -> int:
    """Convert as the arguments specify, and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="events to convert")
    parser.add_argument("--to", nargs="+", choices=CONVERTED, default=[], help="formats to add")
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


def _run(arguments: argparse.Namespace) -> None:
    if arguments.engine == "ray":
        with ray_engine() as engine:
            add_formats(arguments.folder, arguments.to, engine)
    else:
        add_formats(arguments.folder, arguments.to)


if __name__ == "__main__":
    sys.exit(main())
