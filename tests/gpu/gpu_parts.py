"""The parts of `run.py`, which record their findings and continue after errors.

Each part imports its libraries itself, so a missing library affects only this part.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from gpu_loops import Loop

    from keepfed.measure.trace import Trace

REPO = Path(__file__).resolve().parents[2]


class Notes:
    """The findings of one part, saved in `folder/notes/PART.json` after each finding."""

    def __init__(self, part: str, folder: Path, about: dict[str, str]):
        """Start without findings; `about` describes machine and date."""
        self.folder, self.about, self.failures = folder, about, 0
        self._all: dict[str, Any] = {"part": part, **about, "found": {}}
        self._path = folder / "notes" / f"{part}.json"
        self._path.parent.mkdir(parents=True, exist_ok=True)

    def attempt(self, name: str, work: Callable[[], Any]) -> None:
        """Record the result or the error of `work`, and continue.

        Errors count as failures, but missing libraries do not.
        """
        begun = time.perf_counter()
        entry: dict[str, Any] = {}
        try:
            entry["found"] = work()
            words = entry["found"]
        except ImportError as error:
            words = entry["not run"] = str(error)
            words = f"NOT RUN: {words}"
        except Exception as error:  # continue after any error
            self.failures += 1
            kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
            entry["failed"], entry["where"] = f"{kind}{error}", traceback.format_exc()
            words = f"FAILED: {entry['failed']}"
        entry["seconds"] = round(time.perf_counter() - begun, 2)
        self._all["found"][name] = entry
        self._path.write_text(json.dumps(self._all, indent=1, default=str) + "\n")
        print(f"  {name:36} {words}", flush=True)


Part = Callable[[Notes, argparse.Namespace], None]


def run_parts(options: argparse.Namespace) -> int:
    """Run the parts named in `options` in this process, and return the number of failures."""
    if not (options.emulated or torch.cuda.is_available()):
        print("There is no CUDA device. Run this on a machine with a GPU, or add --emulated.")
        return 1
    about, failures = machine_facts(emulated=options.emulated), 0
    print("  " + ", ".join(f"{key} {value}" for key, value in about.items()))
    for name in options.parts:
        notes = Notes(name, options.out, about)
        try:
            PARTS[name](notes, options)
        except ImportError as error:
            print(f"  NOT RUN: {error}")
        failures += notes.failures
    return failures


def machine_facts(*, emulated: bool) -> dict[str, str]:
    """Return the facts that are stored with every recording."""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, check=True, timeout=10)
        driver = answer.stdout.split("\n")[0]
    except (OSError, subprocess.SubprocessError):
        driver = "unknown"
    return {
        "gpu": "emulated H200" if emulated else torch.cuda.get_device_name(),
        "driver": driver,
        "torch": torch.__version__,
        "cuda": torch.version.cuda or "none",
        "python": platform.python_version(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": "python tests/gpu/run.py",
    }


def checks(notes: Notes, options: argparse.Namespace) -> None:
    """Run the checks of a GPU."""
    from gpu_checks import CHECKS

    from course_utils.hardware.gpu import timed_accelerator

    gpu, _ = timed_accelerator("H200", step_ms=20, emulate=options.emulated)
    for check in CHECKS:
        notes.attempt(check.__name__, lambda check=check: check(gpu))


def review(notes: Notes, options: argparse.Namespace) -> None:
    """Run checks of expectations from a code review on a real GPU."""
    if options.emulated:
        raise ImportError("the emulated device has separate tests for these facts")
    from gpu_review import REVIEW

    from course_utils.hardware.gpu.cuda import CudaAccelerator

    gpu = CudaAccelerator(step_ms=20)
    for check in REVIEW:
        notes.attempt(check.__name__, lambda check=check: check(gpu))


def cards(notes: Notes, options: argparse.Namespace) -> None:
    """Run the faulty and fixed programs of the field guide that need a GPU."""
    if options.emulated:
        raise ImportError("these programs need CUDA itself")
    from keepfed.field_guide import entries

    for name, entry in entries().items():
        if entry.needs == "a GPU":
            for program, wanted in (
                (entry.without("+"), entry.prints),
                (entry.without("-"), entry.prints_fixed),
            ):
                title = f"{name}, {'broken' if wanted == entry.shows else 'repaired'}"
                notes.attempt(title, partial(run_and_expect, program, wanted))


def run_and_expect(program: str, wanted: str) -> str:
    """Run `program`, check that it prints `wanted`, and return `wanted`."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "card.py"
        script.write_text(program, "utf-8")
        printed = _python([str(script)], None).stdout
    assert wanted in printed, _tail(printed, 5)
    return wanted


def loops(notes: Notes, options: argparse.Namespace) -> None:
    """Compare the utilization of this device and of an emulated one with the same times."""
    from gpu_loops import LOOPS, compare

    from course_utils.hardware.gpu import get_accelerator

    gpu = get_accelerator("H200", step_ms=20, emulate=options.emulated)
    for loop in LOOPS:
        keep = partial(save, loop, notes)
        notes.attempt(loop.name, lambda loop=loop, keep=keep: compare(gpu, loop, keep))


def save(loop: Loop, notes: Notes, real: Trace, emulated: Trace) -> None:
    """Write both traces for `load_chrome` and Perfetto, with everything needed to repeat them."""
    from keepfed.measure.exchange import save_chrome

    about = {**notes.about, "command": f"{notes.about['command']} loops"}
    for kind, trace in (("measured", real), ("emulated", emulated)):
        path = notes.folder / f"{slug(about, loop.name)}-{kind}.json"
        save_chrome(trace, path, **about, loop=asdict(loop))


def probes(notes: Notes, options: argparse.Namespace) -> None:
    """Measure properties that are not documented."""
    from gpu_probes import PROBES

    from course_utils.hardware.gpu import timed_accelerator

    gpu, clock = timed_accelerator("H200", step_ms=20, emulate=options.emulated)
    for probe in PROBES:
        notes.attempt(probe.__name__, lambda probe=probe: probe(gpu, clock))


def training(notes: Notes, options: argparse.Namespace) -> None:
    """Train a small network on JPEGs with several ways of loading."""
    from gpu_training import WAYS, course_images, train

    from course_utils.hardware.gpu import get_accelerator

    gpu = get_accelerator("H200", emulate=options.emulated)
    images = options.images or course_images()
    size = {"batch_size": 16, "steps": 3, "size": 32, "width": 4} if options.emulated else {}
    for way in WAYS:
        notes.attempt(way, lambda way=way: train(images, gpu, way, **size))


def spread(notes: Notes, options: argparse.Namespace) -> None:
    """Repeat checks and loops, to see the difference between two runs."""
    checks(notes, options)
    loops(notes, options)


def tests(notes: Notes, options: argparse.Namespace) -> None:
    """Run the tests of GPU code, and the programs of the field guide that need a GPU."""
    need("pytest")
    runs = [] if options.emulated else ["tests/gpu"]
    runs += ["tests/hardware/gpu", "tests/loading/prefetch", "tests/loading/images/test_augment.py"]
    chosen = {run: [run] for run in runs}
    guide = (REPO / "keepfed/src/keepfed/field_guide").glob("*.toml")
    programs = [path.stem for path in guide if 'needs = "a GPU"' in path.read_text("utf-8")]
    chosen["field guide"] = ["tests/stories/test_field_guide.py", "-k", " or ".join(programs)]
    for name, arguments in chosen.items():
        command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
        notes.attempt(name, lambda command=command: succeeds(command))


def races(notes: Notes, options: argparse.Namespace) -> None:
    """Check that PyTorch's sanitizer reports a race in design 2, but not in designs 3 and 4."""
    script = "tests/gpu/gpu_races.py"
    if options.emulated:
        for design in ("2", "3", "4"):
            command = [script, design, "--emulated"]
            notes.attempt(design, lambda command=command: succeeds(command))
        return
    watched = {"TORCH_CUDA_SANITIZER": "1"}
    notes.attempt("2", lambda: reports_a_race([script, "2"], watched))
    for design in ("3", "4"):
        notes.attempt(design, lambda design=design: succeeds([script, design], watched))


def profile(notes: Notes, options: argparse.Namespace) -> None:
    """Save a real export of torch.profiler, and load it with `load_profile`."""
    from gpu_checks import profiled

    from course_utils.hardware.gpu import get_accelerator

    gpu = get_accelerator("H200", step_ms=20, emulate=options.emulated)
    notes.attempt("load_profile", lambda: profiled(gpu, notes.folder / "torch-profile.json.gz"))


def augment(notes: Notes, options: argparse.Namespace) -> None:
    """Compare the same augmentation on CPU and device, and check that it does not wait."""
    from course_utils.loading.images import Augment

    device = torch.device("cpu" if options.emulated else "cuda")
    made, random = Augment(size=224), torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (32, 3, 256, 256), dtype=torch.uint8, generator=random)
    draws = made.draw(images.shape, generator=random)
    here, there = made(images, draws), images.to(device)

    def apart() -> str:
        difference = (made(there, draws.to(device)).cpu() - here).abs().max().item()
        assert difference < 1e-3, difference  # for float32 values up to 2.6
        return f"at most {difference:.2g} apart"

    def waits_for_nothing() -> str:
        made(there, draws.to(device))  # creates its constants
        with no_synchronization(device):
            made(there, draws.to(device))
        return "no operation waits for the device"

    notes.attempt("same values", apart)
    notes.attempt("set_sync_debug_mode", waits_for_nothing)


def notebooks(notes: Notes, options: argparse.Namespace) -> None:
    """Run notebooks 08 and 09 with their solutions."""
    need("pytest", "nbformat", "ipykernel")
    for number in ("08", "09"):
        command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", f"{number}_"]
        command += ["tests/notebooks/test_notebooks.py"]
        notes.attempt(number, lambda command=command: succeeds(command))


PARTS: dict[str, Part] = {
    part.__name__: part
    for part in (
        *(checks, review, cards, loops, probes, training, spread),
        *(tests, races, profile, augment, notebooks),
    )
}


def slug(about: dict[str, Any], name: str) -> str:
    """Return a file name for a recording of this machine."""
    return re.sub(r"\W+", "-", f"{about['gpu']} {name}".lower())


def need(*libraries: str) -> None:
    """Raise ImportError unless all of them are installed."""
    for library in libraries:
        if importlib.util.find_spec(library) is None:
            raise ImportError(f"{library} is not installed")


def succeeds(arguments: Sequence[str], variables: Mapping[str, str] | None = None) -> str:
    """Run Python with these arguments, and return the last line of output."""
    run = _python(arguments, variables)
    if missing := re.search(r"ModuleNotFoundError: (.*)", run.stdout):
        raise ImportError(missing[1])
    assert run.returncode == 0, f"exit status {run.returncode}: {_tail(run.stdout)}"
    return _tail(run.stdout, 1)


def reports_a_race(arguments: Sequence[str], variables: Mapping[str, str] | None = None) -> str:
    """Run Python with these arguments, expect the sanitizer to stop it, and return its message."""
    run = _python(arguments, variables)
    assert "data race" in run.stdout, _tail(run.stdout)
    return next(line for line in run.stdout.splitlines() if "data race" in line)


def _python(
    arguments: Sequence[str], variables: Mapping[str, str] | None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=REPO,
        env={**os.environ, **(variables or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def _tail(text: str, lines: int = 15) -> str:
    return "\n".join(text.strip().splitlines()[-lines:])


@contextmanager
def no_synchronization(device: torch.device) -> Any:
    """Let torch raise an error if an operation waits for the device."""
    if device.type != "cuda":
        yield
        return
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")
