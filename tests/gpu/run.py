"""Check the CUDA side of the course on a real GPU, and record what the GPU did.

python tests/gpu/run.py                   # all parts; the first ones need only torch and numpy
python tests/gpu/run.py probes loops      # selected parts
python tests/gpu/run.py --minutes 7       # start no part after 7 minutes
python tests/gpu/run.py --emulated        # on an emulated device; saves nothing

Each part runs in a separate process, so a crash does not affect the others. Recordings for notebook
09 go to the folder `notebooks/recordings`. After each part, all results are packed into
gpu-check.zip in the same folder. If the variable OUT names a folder, the zip and report.txt are
copied there.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from threading import Timer

HERE = Path(__file__).resolve().parent
REPO = HERE.parents[1]
PACK = "gpu-check.zip"
# in the order of importance, with the time limit of each part in seconds
PARTS = {
    "checks": 120,
    "review": 90,
    "cards": 90,
    "loops": 180,
    "probes": 180,
    "training": 300,
    "spread": 300,
    "tests": 600,
    "races": 180,
    "profile": 120,
    "augment": 120,
    "notebooks": 900,
}


def main(arguments: list[str] | None = None) -> int:
    """Run the parts one at a time, and return the number of failures as exit status."""
    options = parse(arguments)
    if options.here:
        sys.path[:0] = [str(HERE), str(REPO), str(REPO / "keepfed/src")]
        from gpu_parts import run_parts  # imports torch, which the parent process should not do

        return run_parts(options)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        found, failures = Path(folder), 0
        for part in options.parts:
            left = 60 * options.minutes - (time.monotonic() - begun)
            if left < 10:
                print(f"There is no time left for {part}.")
                continue
            failures += run_part(part, options, found, min(PARTS[part], left))
            if options.out:
                keep(found, options.out)
            if outbox := os.environ.get("OUT"):  # for machines that return only a few files
                for path in (options.out and options.out / PACK, found / "report.txt"):
                    if path and path.is_file():
                        shutil.copy(path, outbox)
    if options.out:
        print(f"All results: {options.out / PACK}")
    return failures


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Return the options; the default is all parts."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="part", help=", ".join(PARTS))
    parser.add_argument("--emulated", action="store_true", help="use no GPU, and save nothing")
    parser.add_argument(
        "--out", type=Path, help="folder for the results (default: notebooks/recordings)"
    )
    parser.add_argument(
        "--images", type=Path, help="folder with JPEGs by class (default: the course's images)"
    )
    parser.add_argument("--minutes", type=float, default=1e6, help="start no part after this time")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if unknown := [part for part in options.parts if part not in PARTS]:
        parser.error(f"There is no part {unknown[0]!r}. Choose from {', '.join(PARTS)}.")
    options.parts = options.parts or list(PARTS)
    if options.out is None and not options.emulated:
        options.out = REPO / "notebooks/recordings"
    return options


def run_part(part: str, options: argparse.Namespace, found: Path, seconds: float) -> int:
    """Run one part in a separate process, and return its failures.

    A crash or a hang counts as one failure. The output is shown immediately and saved.
    """
    command = [sys.executable, str(HERE / "run.py"), part, "--here", "--out", str(found)]
    command += ["--emulated"] * options.emulated
    command += ["--images", str(options.images)] if options.images else []
    begun, pipe = time.monotonic(), subprocess.PIPE
    variables = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with (
        (found / "report.txt").open("a", encoding="utf-8") as report,
        subprocess.Popen(command, stdout=pipe, stderr=subprocess.STDOUT, env=variables) as process,
    ):

        def say(line: str) -> None:
            print(line, end="", flush=True)
            report.write(line)

        limit = Timer(seconds, process.kill)
        limit.start()
        say(f"{part}:\n")
        for line in process.stdout or ():
            say(line.decode("utf-8", "replace"))
        failures = process.wait()
        limit.cancel()
        if failures < 0:
            took = time.monotonic() - begun
            say(f"  {part} was ended by signal {-failures} after {took:.0f} s\n")
    return abs(failures)


def keep(found: Path, out: Path) -> None:
    """Pack all results, and copy the recordings to the folder that notebook 09 uses."""
    out.mkdir(parents=True, exist_ok=True)
    packed = out / f"{PACK}.part"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(found.rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(found))
    packed.replace(out / PACK)
    for path in found.glob("*.json"):
        shutil.copy(path, out)


if __name__ == "__main__":
    sys.exit(main())
