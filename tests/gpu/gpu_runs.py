"""Run all notebooks and the tests on this machine, with one line for each as it ends."""

from __future__ import annotations

import importlib.util
import json
import os
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from keepfed.limits import usable_cores

if TYPE_CHECKING:
    import pytest
    from gpu_parts import Notes

REPO = Path(__file__).resolve().parents[2]
NOTEBOOKS = REPO / "notebooks"
AT_ONCE = max(usable_cores() // 2 - 1, 1)  # notebooks or tests, as both start workers
TESTS = ["tests/hardware", "tests/gpu", "keepfed/tests"]
TESTS += [f"tests/{room}" for room in ("loading", "teaching", "stories", "exercises", "command")]
VARIABLES = {"COURSE_SIZE": "S", "MPLBACKEND": "module://matplotlib_inline.backend_inline"}


def run_notebooks(notes: Notes) -> None:
    """Run each notebook as learners have it and solved, the slowest first."""
    logs = notes.folder / "notebooks"
    logs.mkdir(exist_ok=True)
    durations = json.loads((REPO / "tests/durations.json").read_text("utf-8"))
    seconds = {test.partition("[")[2][:-1]: took for test, took in durations.items()}
    paths = [*NOTEBOOKS.glob("*.ipynb"), *NOTEBOOKS.glob("solutions/*.ipynb")]
    paths.sort(key=lambda path: -seconds.get(path.stem, 0))
    names = {f"{path.stem[:30]}{', solved' * _solved(path)}": path for path in paths}
    works = {n: partial(run_notebook, path, logs / f"{n}.txt") for n, path in names.items()}
    notes.attempt_all(works, at_once=AT_ONCE)


def run_notebook(path: Path, log: Path) -> str:
    """Run all cells, write what each shows to `log` at once, and return the number of cells."""
    from jupyter_core.utils import ensure_event_loop

    from tests.notebooks.kernel import code_cells, complaints, running_kernel, verdicts

    wanted = "right" if _solved(path) else "todo"
    cells, wrong = code_cells(path), list[str]()
    with (
        closing(ensure_event_loop()),  # a thread has its own
        TemporaryDirectory() as folder,
        log.open("w", encoding="utf-8") as shown,
        running_kernel(Path(folder), **VARIABLES) as kernel,
    ):
        for number, cell in enumerate(cells, 1):
            print(f"--- cell {number}:\n{cell.source}\n---", file=shown, flush=True)
            outputs = kernel.result(cell.source).outputs
            for output in outputs:
                print(_text(output), file=shown, flush=True)
            errors = [out for out in outputs if out["output_type"] == "error"]
            if "raises-exception" not in cell.metadata.get("tags", ()):
                if errors and errors[0]["ename"] in ("ImportError", "ModuleNotFoundError"):
                    raise ImportError(errors[0]["evalue"])
                said = [f"{out['ename']}: {out['evalue'].strip()}" for out in errors]
                first, *_ = cell.source.strip().splitlines()
                for text in (said or complaints(outputs))[:1]:
                    wrong.append(f"cell {number} ({first}): {text.splitlines()[-1]}")
            for exercise, status in verdicts(outputs):
                if status != wanted:
                    wrong.append(f"cell {number}: check {exercise} says {status}")
    assert not wrong, "; ".join(wrong)
    return f"ok, {len(cells)} cells"


def run_tests(notes: Notes, paths: list[str]) -> None:
    """Run the tests in several processes, and record each that fails."""
    import pytest

    os.chdir(REPO)
    lines = Lines(notes)
    options = ["-p", "no:cacheprovider", "-p", "no:terminal", "-o", "addopts="]
    options += ["--import-mode=importlib", "-m", "not full and not alone and not browser"]
    if importlib.util.find_spec("xdist"):
        options += ["-n", str(AT_ONCE), "--dist", "loadfile"]
    status = pytest.main([*options, *paths], plugins=[lines])
    notes.attempt("all tests", lambda: f"exit status {status:d}, {dict(lines.ended)}")


class Lines:
    """A plugin for pytest that records failed tests immediately, and counts all of them."""

    def __init__(self, notes: Notes):
        self.notes, self.ended = notes, Counter[str]()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed:
            self.ended[report.outcome] += 1
            self._record(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._record(report)

    def _record(self, report: Any) -> None:
        if report.failed:
            self.notes.attempt(report.nodeid, partial(_fail, report.longreprtext))


def _fail(text: str) -> None:
    """Raise the error that ended a failed test, with the whole text as a note."""
    lines = [line[1:].strip() for line in text.splitlines() if line.startswith("E  ")]
    words = " | ".join(lines)[:300] or text.strip()[-300:]
    missing = words.startswith("ModuleNotFoundError: ")
    error = ImportError(words.partition(": ")[2]) if missing else AssertionError(words)
    error.add_note(text)
    raise error


def _solved(path: Path) -> bool:
    return path.parent.name == "solutions"


def _text(output: Mapping[str, Any]) -> str:
    """Return what a learner reads of an output, without pictures."""
    shown = output.get("text") or output.get("data", {}).get("text/plain", "")
    return str(shown or "\n".join(output.get("traceback", ())))
