"""Try the course on a real GPU, what was never tried first, and record what the GPU did.

python tests/gpu/run.py --minutes 12          # everything; each part has a share of the time
python tests/gpu/run.py wild cards            # selected parts
python tests/gpu/run.py notebooks --only 09   # what has this in its name; for tests: files
python tests/gpu/run.py --emulated            # without a GPU; saves nothing

Each part runs in a separate process, so a crash does not affect the others. Recordings for notebook
09 go to the folder `notebooks/recordings`. All results are packed into gpu-check.zip in the same
folder every few seconds. If the variable OUT names a folder, the zip and report.txt are copied
there.
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
from contextlib import suppress
from pathlib import Path
from threading import Timer
from typing import Any

import psutil

HERE = Path(__file__).resolve().parent
REPO = HERE.parents[1]
PACK = "gpu-check.zip"
PACK_EVERY_S, LEAST_S = 5, 10  # a part starts if it has this time
# in the order of importance, with shares of the time. A part that ends early leaves its rest
PARTS = {"notebooks": 42, "tests": 23, "wild": 16, "cards": 8, "checks": 6, "loops": 5}


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    if options.here:
        sys.path[:0] = [str(HERE), str(REPO), str(REPO / "keepfed/src")]
        from gpu_parts import run_parts  # imports torch, which the parent process should not do

        return run_parts(options)
    ends, failures = time.monotonic() + 60 * options.minutes, 0
    with tempfile.TemporaryDirectory() as folder:
        for number, part in enumerate(options.parts):
            left = ends - time.monotonic()
            share = PARTS[part] / sum(PARTS[later] for later in options.parts[number:])
            if left * share < LEAST_S:
                print(f"There is no time left for {part}.")
                continue
            failures += run_part(part, options, Path(folder), left * share)
            keep(Path(folder), options.out)
    if options.out:
        print(f"All results: {options.out / PACK}")
    return failures


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="part", help=", ".join(PARTS))
    parser.add_argument("--emulated", action="store_true", help="use no GPU, and save nothing")
    where = "folder for the results (default: notebooks/recordings)"
    parser.add_argument("--out", type=Path, help=where)
    parser.add_argument("--minutes", type=float, default=12, help="time of all parts (default: 12)")
    parser.add_argument("--only", action="append", default=[], help="run only what has this name")
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

    A crash or a hang counts as one failure. The output is shown and saved immediately.
    """
    command = [sys.executable, str(HERE / "run.py"), part, "--here", "--out", str(found)]
    command += ["--emulated"] * options.emulated
    command += [word for text in options.only for word in ("--only", text)]
    paths = [str(REPO), str(REPO / "keepfed/src"), os.environ.get("PYTHONPATH", "")]
    variables = {"PYTHONUNBUFFERED": "1", "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    begun = kept = time.monotonic()
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with (
        (found / "report.txt").open("a", encoding="utf-8") as report,
        subprocess.Popen(command, env={**os.environ, **variables}, **pipes) as process,
    ):

        def say(line: str) -> None:
            print(line, end="", flush=True)
            print(line, end="", file=report, flush=True)

        limit = Timer(seconds, end, [process.pid])
        limit.start()
        say(f"{part}:\n")
        for line in process.stdout or ():
            say(line.decode("utf-8", "replace"))
            if time.monotonic() > kept + PACK_EVERY_S:
                keep(found, options.out)
                kept = time.monotonic()
        failures = process.wait()
        limit.cancel()
        if failures < 0:
            took = time.monotonic() - begun
            say(f"  {part} was ended by signal {-failures} after {took:.0f} s\n")
    return abs(failures)


def end(pid: int) -> None:
    """Kill a part, and the kernels and workers that it started."""
    with suppress(psutil.NoSuchProcess):
        part = psutil.Process(pid)
        for process in (part, *part.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                process.kill()


def keep(found: Path, out: Path | None) -> None:
    """Pack all results, and copy the recordings to the folder that notebook 09 uses."""
    if out is None:
        return
    out.mkdir(parents=True, exist_ok=True)
    packed = out / f"{PACK}.part"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(found.rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(found))
    packed.replace(out / PACK)
    for path in found.glob("*.json"):
        shutil.copy(path, out)
    if outbox := os.environ.get("OUT"):  # for machines that return only a few files
        for path in (out / PACK, found / "report.txt"):
            shutil.copy(path, outbox)


if __name__ == "__main__":
    sys.exit(main())
