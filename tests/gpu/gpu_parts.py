"""The parts of `run.py`, which record their findings and continue after errors.

Each part imports its libraries itself, so a missing library affects only this part.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from gpu_loops import Loop

    from keepfed.measure.trace import Trace

HERE = Path(__file__).resolve().parent
REPO = HERE.parents[1]
MORE_S = 300  # a program that runs longer has failed, even on two busy cores


class Notes:
    """The findings of one part, saved in `folder/notes/PART.json` after each finding."""

    def __init__(self, part: str, folder: Path, about: dict[str, str], only: Sequence[str] = ()):
        """Start without findings. Attempts without a part of `only` in the name are left out."""
        self.folder, self.about, self.failures, self.only = folder, about, 0, only
        self._all: dict[str, Any] = {"part": part, **about, "found": {}}
        self._path = folder / "notes" / f"{part}.json"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = Lock()

    def attempt(self, name: str, work: Callable[[], Any]) -> None:
        """Record the result or the error of `work`, and continue.

        Errors count as failures, but missing libraries do not.
        """
        if self.only and not any(text in name for text in self.only):
            return
        begun = time.perf_counter()
        entry: dict[str, Any] = {}
        try:
            words = entry["found"] = work()
        except ImportError as error:
            entry["not run"] = str(error)
            words = f"NOT RUN: {error}"
        except Exception as error:  # continue after any error
            kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
            entry["failed"], entry["where"] = f"{kind}{error}", traceback.format_exc()
            words = f"FAILED: {entry['failed']}"
        entry["seconds"] = round(time.perf_counter() - begun, 2)
        line = " ".join(f"{name:36} {entry['seconds']:5.0f} s  {words}".splitlines())
        with self._lock:
            self.failures += "failed" in entry
            self._all["found"][name] = entry
            self._path.write_text(json.dumps(self._all, indent=1, default=str) + "\n")
            print(f"  {line}", flush=True)

    def attempt_all(self, works: Mapping[str, Callable[[], Any]], *, at_once: int) -> None:
        """Attempt some works at the same time, and record each as it ends."""
        with ThreadPoolExecutor(at_once) as pool:
            for name, work in works.items():
                pool.submit(self.attempt, name, work)


def run_parts(options: argparse.Namespace) -> int:
    """Run the parts named in `options` in this process, and return the number of failures."""
    if not (options.emulated or torch.cuda.is_available()):
        print("There is no CUDA device. Run this on a machine with a GPU, or add --emulated.")
        return 1
    about, failures = machine_facts(emulated=options.emulated), 0
    print("  " + ", ".join(f"{key} {value}" for key, value in about.items()))
    for name in options.parts:
        notes = Notes(name, options.out, about, options.only)
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


def notebooks(notes: Notes, options: argparse.Namespace) -> None:
    """Run all notebooks, as learners have them and solved."""
    from gpu_runs import run_notebooks

    run_notebooks(notes)


def tests(notes: Notes, options: argparse.Namespace) -> None:
    """Run the tests of keepfed and of the course, or the files that `--only` names."""
    from gpu_runs import TESTS, run_tests

    paths, notes.only = notes.only or TESTS, ()
    run_tests(notes, [*paths])


def wild(notes: Notes, options: argparse.Namespace) -> None:
    """Run programs that were never tried on CUDA, each in its own process."""
    from gpu_wild import AT_ONCE, WILD

    script, emulated = str(HERE / "gpu_wild.py"), ["--emulated"] * options.emulated
    works = {name: partial(succeeds, [script, name, *emulated]) for name in WILD}
    notes.attempt_all(works, at_once=AT_ONCE)


def cards(notes: Notes, options: argparse.Namespace) -> None:
    """Run the faulty and the fixed programs of the field guide that need this machine."""
    from keepfed.field_guide import entries

    needs = "a GPU" if torch.cuda.is_available() else "a machine without a GPU"
    for name, entry in entries().items():
        if entry.needs == needs:
            start = f"import multiprocessing as m; m.set_start_method({entry.method or None!r})\n"
            faulty = partial(run_and_expect, start + entry.without("+"), entry.prints)
            fixed = partial(run_and_expect, start + entry.without("-"), entry.prints_fixed)
            notes.attempt(f"{name}, faulty", faulty)
            notes.attempt(f"{name}, fixed", fixed)


def run_and_expect(program: str, wanted: str) -> str:
    """Run `program`, check that it prints `wanted`, and return `wanted`."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "card.py"
        script.write_text(program, "utf-8")
        printed = _python([str(script)]).stdout
    assert wanted in printed, _tail(printed, 5)
    return wanted


def checks(notes: Notes, options: argparse.Namespace) -> None:
    """Run the checks of a GPU."""
    from gpu_checks import CHECKS

    from course_utils.hardware.gpu import timed_accelerator

    for check in CHECKS:
        gpu, _ = timed_accelerator("H200", step_ms=20, emulate=options.emulated)
        notes.attempt(check.__name__, partial(check, gpu))


def loops(notes: Notes, options: argparse.Namespace) -> None:
    """Compare the utilization of this device and of an emulated one with the same times."""
    from gpu_loops import LOOPS, compare

    from course_utils.hardware.gpu import get_accelerator

    gpu = get_accelerator("H200", step_ms=20, emulate=options.emulated)
    for loop in LOOPS:
        notes.attempt(loop.name, partial(compare, gpu, loop, partial(save, loop, notes)))


def save(loop: Loop, notes: Notes, real: Trace, emulated: Trace) -> None:
    """Write both traces for `load_chrome` and Perfetto, with everything needed to repeat them."""
    from keepfed.measure.exchange import save_chrome

    about = {**notes.about, "command": f"{notes.about['command']} loops"}
    for kind, trace in (("measured", real), ("emulated", emulated)):
        name = re.sub(r"\W+", "-", f"{about['gpu']} {loop.name}".lower())
        save_chrome(trace, notes.folder / f"{name}-{kind}.json", **about, loop=asdict(loop))


PARTS: dict[str, Callable[[Notes, argparse.Namespace], None]] = {
    part.__name__: part for part in (notebooks, tests, wild, cards, checks, loops)
}


def succeeds(arguments: Sequence[str]) -> str:
    """Run Python with these arguments, and return the last line of output."""
    run = _python(arguments)
    if missing := re.search(r"ModuleNotFoundError: (.*)", run.stdout):
        raise ImportError(missing[1])
    assert run.returncode == 0, f"exit status {run.returncode}: {_tail(run.stdout, 15)}"
    return _tail(run.stdout, 1)


def _python(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.run([sys.executable, *arguments], cwd=REPO, timeout=MORE_S, **pipes)


def _tail(text: str, lines: int) -> str:
    return "\n".join(text.strip().splitlines()[-lines:])
