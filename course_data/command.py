"""Run a script that makes a data set: its arguments, its words, its errors as sentences."""

import argparse
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from course_data import files
from course_utils.errors import CourseError
from course_utils.paths import SIZES, data_root
from keepfed.errors import KeepfedError, sentence

Build = Callable[[Path, str, int], files.Facts]
ELSEWHERE = "name another place in COURSE_DATA"


@dataclass(frozen=True)
class Recipe:
    """How to make one data set.

    Attributes:
        name: "events" makes the folder events-M.
        version: goes up when the same seed gives other bytes.
        counts: samples of each size.
        bytes_each: room that one sample takes on the disk, in all formats of its size.
        build: fills a folder, given size and seed, and returns facts for the manifest.
    """

    name: str
    version: int
    counts: Mapping[str, int]
    bytes_each: Mapping[str, int]
    build: Build


def run(recipe: Recipe, argv: Sequence[str] | None, *, usage: str) -> int:
    """Make the data set that the arguments ask for, or check it; return the exit code."""
    arguments = _parse(recipe, argv, usage)
    folder = arguments.out or data_root() / f"{recipe.name}-{arguments.size}"
    if arguments.check:
        return guarded(lambda: check(folder))
    return guarded(lambda: _make(recipe, folder, arguments))


def guarded(action: Callable[[], None]) -> int:
    """Return 0 if `action` ends well, else say what is wrong in one sentence and return 1."""
    try:
        action()
    except (KeepfedError, OSError) as error:
        print(sentence(error, elsewhere=ELSEWHERE), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped; what was unfinished is cleared away.", file=sys.stderr)
        return 130
    return 0


def check(folder: Path, *, but: Collection[str] = ()) -> None:
    """Read every file and compare it with its checksum.

    Args:
        folder: a data set.
        but: files and folders in it that do not matter.

    Raises:
        CourseError: the folder holds no whole data set, or a file is corrupted.
    """
    manifest = files.read_manifest(folder)
    if manifest is None:
        raise CourseError(f"{folder} holds no whole data set; make it without --check.")
    broken = [name for name in files.corrupted(folder) if name.partition("/")[0] not in but]
    if broken:
        named = ", ".join(broken[:3]) + (", ..." if len(broken) > 3 else "")
        raise CourseError(
            f"{len(broken)} of the files in {folder} are not as they were made ({named}); "
            f"{_remedy(folder, manifest, broken)}."
        )
    print(f"{folder}: all files are as they were made.")


def _make(recipe: Recipe, folder: Path, arguments: argparse.Namespace) -> None:
    size, seed = arguments.size, arguments.seed
    count = recipe.counts[size]
    facts = {"data": recipe.name, "version": recipe.version, "size": size, "seed": seed}
    with files.locked(folder):
        if _is_there(folder, facts, force=arguments.force):
            print(f"{folder}: {count:,} {recipe.name}, already there.")
            return
        start = time.perf_counter()
        files.make_folder(
            folder,
            lambda empty: recipe.build(empty, size, seed),
            facts=facts,
            room=count * recipe.bytes_each[size],
        )
        seconds = time.perf_counter() - start
    megabytes = (files.read_manifest(folder) or {})["bytes"] / 1e6
    print(f"{folder}: {count:,} {recipe.name}, {megabytes:,.0f} MB, made in {seconds:.0f} s.")


def _is_there(folder: Path, facts: files.Facts, *, force: bool) -> bool:
    """Return whether the wanted data set is there; refuse to replace what is not ours."""
    if not folder.exists() or not any(folder.iterdir()):
        return False
    manifest = files.read_manifest(folder)
    if manifest is None or manifest.get("data") != facts["data"]:
        raise CourseError(
            f"{folder} is there but holds no whole {facts['data']}; delete it, or name another "
            "place in COURSE_DATA."
        )
    if force:
        return False
    for key, value in facts.items():
        if manifest.get(key) != value:
            raise CourseError(
                f"{folder} was made with {key} {manifest.get(key)}, not {value}; "
                "delete it, or name another place in COURSE_DATA."
            )
    if not files.sizes_match(folder, manifest):
        check(folder)
    return True


def _remedy(folder: Path, manifest: files.Facts, broken: Sequence[str]) -> str:
    from course_utils.loading.events import CONVERTED, FORMATS  # not needed to make images

    entries = {name.partition("/")[0] for name in broken}
    formats = [name for name in CONVERTED if FORMATS[name].entry in entries]
    if manifest.get("data") == "events" and len(formats) == len(entries):
        return (
            f"delete {', '.join(sorted(entries))} there, and write that anew with `python -m "
            f"course_data.convert_events {folder} --to {' '.join(formats)}`"
        )
    if "size" not in manifest:
        return f"delete {folder} and convert it again"
    return (
        f"make them anew with `python -m course_data.make_{manifest['data']} "
        f"--size {manifest['size']} --seed {manifest['seed']} --out {folder} --force`"
    )


def _parse(recipe: Recipe, argv: Sequence[str] | None, usage: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=usage, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sizes = ", ".join(f"{size} = {recipe.counts[size]:,}" for size in SIZES)
    parser.add_argument("--size", choices=SIZES, default="M", help=f"{sizes} (default: M)")
    parser.add_argument("--seed", type=int, default=1, help="same seed, same bytes (default: 1)")
    parser.add_argument("--out", type=Path, help="folder to make (default: in the course's data)")
    parser.add_argument("--force", action="store_true", help="replace what is there")
    parser.add_argument("--check", action="store_true", help="verify the checksums, make nothing")
    return parser.parse_args(argv)
