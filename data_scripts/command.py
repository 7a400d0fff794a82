"""Run a script that creates a data set: arguments, output, and errors as sentences."""

import argparse
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from course_utils.errors import CourseError
from course_utils.paths import SIZES, data_root
from data_scripts import files
from keepfed.errors import KeepfedError, sentence
from keepfed.formatting import plural
from keepfed.formatting import size as in_bytes

Build = Callable[[Path, str, int], files.Facts]
ELSEWHERE = "choose another folder with COURSE_DATA"


@dataclass(frozen=True, kw_only=True)
class DatasetScript:
    """Instructions for creating one data set.

    Attributes:
        name: "events" creates the folder events-M.
        version: Increased when the same seed gives different bytes.
        counts: Number of samples for each size.
        bytes_each: Disk space of one sample, in all formats of its size.
        seconds: CPU time of each size on a laptop.
        build: Function that fills a folder, given size and seed, and returns manifest facts.
        usage: Text of `--help`.
    """

    name: str
    version: int
    counts: Mapping[str, int]
    bytes_each: Mapping[str, int]
    seconds: Mapping[str, int]
    build: Build
    usage: str | None

    def main(self, argv: Sequence[str] | None = None) -> int:
        """Create or check the data set that the arguments specify, and return the exit code."""
        arguments = _parse(self, argv)
        folder = arguments.out or data_root() / f"{self.name}-{arguments.size}"
        if arguments.check:
            return guarded(lambda: check(folder))
        return guarded(lambda: _make(self, folder, arguments))


def guarded(action: Callable[[], None]) -> int:
    """Return 0 if `action` succeeds, otherwise print the error in one sentence and return 1."""
    try:
        action()
    except (KeepfedError, OSError) as error:
        print(sentence(error, elsewhere=ELSEWHERE), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped. Unfinished files were removed.", file=sys.stderr)
        return 130
    return 0


def check(folder: Path, *, but: Collection[str] = ()) -> None:
    """Read every file and compare it with its checksum.

    Args:
        folder: Folder of a data set.
        but: Files and folders in it to ignore.

    Raises:
        CourseError: If the folder contains no complete data set, or a file is corrupted.
    """
    manifest = files.read_manifest(folder)
    if manifest is None:
        raise CourseError(
            f"{folder} does not contain a complete data set of the course. Create one by omitting "
            "--check."
        )
    broken = [name for name in files.corrupted(folder) if name.partition("/")[0] not in but]
    if broken:
        named = ", ".join(broken[:3]) + (", ..." if len(broken) > 3 else "")
        raise CourseError(
            f"{folder} contains {plural(len(broken), 'corrupted file')} ({named}). "
            "Create them again with `python -m data_scripts."
            f"make_{manifest['data']} --size {manifest['size']} --seed {manifest['seed']} "
            f"--out {folder} --force`."
        )
    print(f"{folder}: all files are intact.")


def _make(script: DatasetScript, folder: Path, arguments: argparse.Namespace) -> None:
    size, seed = arguments.size, arguments.seed
    count, room = script.counts[size], script.counts[size] * script.bytes_each[size]
    facts = {"data": script.name, "version": script.version, "size": size, "seed": seed}
    with files.locked(folder):
        if _is_there(folder, facts, force=arguments.force):
            print(f"{folder}: {count:,} {script.name}, already exists.")
            return
        takes = f"up to {in_bytes(room)}, about {script.seconds[size]} s on an idle laptop"
        print(f"Creating {folder.name}, {count:,} {script.name}: {takes}.", flush=True)
        start = time.perf_counter()
        files.make_folder(
            folder, lambda empty: script.build(empty, size, seed), facts=facts, room=room
        )
        seconds = time.perf_counter() - start
    megabytes = (files.read_manifest(folder) or {})["bytes"] / 1e6
    print(f"{folder}: {count:,} {script.name}, {megabytes:,.0f} MB, created in {seconds:.0f} s.")


def _is_there(folder: Path, facts: files.Facts, *, force: bool) -> bool:
    """Return whether the requested data set exists; refuse to replace other data."""
    if not folder.exists() or not any(folder.iterdir()):
        return False
    manifest = files.read_manifest(folder)
    if manifest is None or manifest.get("data") != facts["data"]:
        raise CourseError(
            f"{folder} already exists, but does not contain a complete {facts['data']} data set. "
            "Delete it, or choose another folder with COURSE_DATA."
        )
    if force:
        return False
    for key, value in facts.items():
        if manifest.get(key) != value:
            raise CourseError(
                f"{folder} was created with {key} {manifest.get(key)}, not {value}. "
                "Delete it, or choose another folder with COURSE_DATA."
            )
    if not files.sizes_match(folder, manifest):
        check(folder)
    return True


def _parse(script: DatasetScript, argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=script.usage, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sizes = ", ".join(f"{size} = {script.counts[size]:,}" for size in SIZES)
    parser.add_argument("--size", choices=SIZES, default="M", help=f"{sizes} (default: M)")
    parser.add_argument("--seed", type=int, default=1, help="same seed, same bytes (default: 1)")
    parser.add_argument("--out", type=Path, help="folder to create (default: in the course's data)")
    parser.add_argument("--force", action="store_true", help="replace an existing data set")
    parser.add_argument("--check", action="store_true", help="only verify the checksums")
    return parser.parse_args(argv)
