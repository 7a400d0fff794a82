"""Check the CUDA side of the course on a real GPU, and record what the GPU did.

python tests/gpu/run.py                   # all parts; torch and numpy are enough for the first
python tests/gpu/run.py probes loops      # these parts
python tests/gpu/run.py --minutes 7       # begin nothing after 7 minutes
python tests/gpu/run.py --emulated        # the same on an emulated device; keeps nothing

Each part runs in a process of its own, so that none takes the others with it. Recordings for
notebook 09 go to the folder `recordings`. All that was found is packed into gpu-check.zip beside
them, after each part anew. If the variable OUT names a folder, the zip and report.txt go there too.
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
# In the order of what a first half hour on a GPU should bring, with the seconds that each may take.
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
    """Run the parts one after the other; the exit status is the number of failures."""
    options = parse(arguments)
    if options.here:
        sys.path[:0] = [str(HERE), str(REPO)]
        from gpu_parts import run_parts  # torch: not in the process that keeps the others going

        return run_parts(options)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        found, failures = Path(folder), 0
        for part in options.parts:
            left = 60 * options.minutes - (time.monotonic() - begun)
            if left < 10:
                print(f"No time is left for {part}.")
                continue
            failures += run_part(part, options, found, min(PARTS[part], left))
            if options.out:
                keep(found, options.out)
            if outbox := os.environ.get("OUT"):  # where a lent machine takes few files back from
                for path in (options.out and options.out / PACK, found / "report.txt"):
                    if path and path.is_file():
                        shutil.copy(path, outbox)
    if options.out:
        print(f"All that was found: {options.out / PACK}")
    return failures


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Return the options; without parts, all of them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="part", help=", ".join(PARTS))
    parser.add_argument("--emulated", action="store_true", help="use no GPU, and keep nothing")
    parser.add_argument("--out", type=Path, help="folder to keep in, if not recordings")
    parser.add_argument("--images", type=Path, help="class folders of JPEGs, if not the course's")
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no part after these")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if unknown := [part for part in options.parts if part not in PARTS]:
        parser.error(f"there is no part {unknown[0]!r}; choose of {', '.join(PARTS)}")
    options.parts = options.parts or list(PARTS)
    if options.out is None and not options.emulated:
        options.out = REPO / "recordings"
    return options


def run_part(part: str, options: argparse.Namespace, found: Path, seconds: float) -> int:
    """Run one part in a process of its own; return its failures, of which a crash or a hang is one.

    What it prints is shown at once, and kept.
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
    """Pack all that was found, and put the recordings where notebook 09 looks for them."""
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
