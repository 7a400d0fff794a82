"""Check the CUDA side of the course on a real GPU, and record what the GPU did.

python tests/gpu/run.py                 # needs torch; writes recordings/*.json
python tests/gpu/run.py --emulated      # the same on an emulated device; writes nothing
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import subprocess
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
REPO = HERE.parents[1]
sys.path[:0] = [str(HERE), str(REPO)]

from gpu_checks import CHECKS  # noqa: E402
from gpu_loops import LOOPS, Loop, compare  # noqa: E402
from gpu_training import train  # noqa: E402

from course_utils.errors import CourseError  # noqa: E402
from course_utils.hardware.gpu import Accelerator, get_accelerator  # noqa: E402
from course_utils.measure.exchange.chrome import save_chrome  # noqa: E402
from course_utils.measure.trace import Trace  # noqa: E402


def save(loop: Loop, real: Trace, emulated: Trace, machine: dict[str, str], folder: Path) -> None:
    """Write both traces, for `load_chrome` and Perfetto, with all that is needed to repeat them."""
    folder.mkdir(exist_ok=True)
    slug = _slug(machine, loop.name)
    for kind, trace in (("measured", real), ("emulated", emulated)):
        save_chrome(trace, folder / f"{slug}-{kind}.json", **machine, loop=asdict(loop))


def save_training(
    gpu: Accelerator, images: Path | None, machine: dict[str, str], folder: Path
) -> None:
    """Train a real model, fed in four ways, and write down how long the GPU was idle."""
    print("A small network on JPEGs, by how it is fed:")
    try:
        if images is None:
            from course_utils.teaching.notebook import data_path

            images = data_path("images")
        found = []
        for fed in train(images, gpu):
            print(fed)
            found.append(fed)
    except (CourseError, ImportError, OSError, ValueError) as error:
        print(f"  not measured: {error}")
        return
    about = {**machine, "images": str(images), "ways": [asdict(fed) for fed in found]}
    (folder / f"{_slug(machine, 'training')}.json").write_text(json.dumps(about, indent=1) + "\n")


def _slug(machine: dict[str, str], name: str) -> str:
    return re.sub(r"\W+", "-", f"{machine['gpu']} {name}".lower())


def machine_facts(gpu: Accelerator) -> dict[str, str]:
    """Return what stands beside every recorded figure."""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, check=True, timeout=10)
        driver = answer.stdout.split("\n")[0]
    except (OSError, subprocess.SubprocessError):
        driver = "unknown"
    return {
        "gpu": gpu.name,
        "driver": driver,
        "torch": torch.__version__,
        "cuda": torch.version.cuda or "none",
        "python": platform.python_version(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(["python", "tests/gpu/run.py", *sys.argv[1:]]),
    }


def main(arguments: list[str] | None = None) -> int:
    """Run everything; the exit status is the number of failures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--emulated", action="store_true", help="use no GPU and write nothing")
    parser.add_argument("--out", type=Path, default=REPO / "recordings", help="folder to write to")
    parser.add_argument("--images", type=Path, help="class folders of JPEGs, if not the course's")
    options = parser.parse_args(arguments)
    if not (options.emulated or torch.cuda.is_available()):
        print("There is no CUDA device here; run this where one is, or add --emulated.")
        return 1
    gpu = get_accelerator("H200", step_ms=20, emulate=options.emulated)
    facts = machine_facts(gpu)
    print(", ".join(f"{key} {value}" for key, value in facts.items()))
    failures = 0
    for check in CHECKS:
        try:
            print(f"  {check.__name__:36} {check(gpu)}")
        except AssertionError as error:
            failures += 1
            print(f"  {check.__name__:36} FAILED: {error}")
    print("Utilisation on this device, and emulated with its times:")
    for loop in LOOPS:
        agree, real, emulated = compare(gpu, loop)
        failures += not agree
        if not options.emulated:
            save(loop, real, emulated, facts, options.out)
    if not options.emulated:
        save_training(gpu, options.images, facts, options.out)
    return failures


if __name__ == "__main__":
    sys.exit(main())
