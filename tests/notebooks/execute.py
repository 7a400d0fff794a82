"""Run a notebook headless, as a learner's Run All would, and keep what can be judged."""

import asyncio
import os
import re
import sys
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbclient
import nbformat
from nbformat import NotebookNode

from course_utils.teaching.exercise.verdict import VERDICT_MIME
from tests.hangs import LIMIT_S, stacks


@dataclass(frozen=True)
class Run:
    """An executed notebook."""

    notebook: NotebookNode
    seconds: float

    @property
    def outputs(self) -> list[NotebookNode]:
        return [out for cell in self.notebook.cells for out in cell.get("outputs", ())]

    @property
    def verdicts(self) -> dict[str, str]:
        return verdicts(self.outputs)

    @property
    def text(self) -> str:
        """Everything that was printed or shown as text."""
        return "".join(out.get("text") or _plain(out) for out in self.outputs)

    @property
    def complaints(self) -> list[str]:
        """What appeared on stderr of cells that are meant to go well."""
        cells = self.notebook.cells
        return complaints(
            out
            for cell in cells
            if "raises-exception" not in cell.metadata.get("tags", ())
            for out in cell.get("outputs", ())
        )


Output = Mapping[str, Any]  # as a notebook's file has it


def verdicts(outputs: Iterable[Output]) -> dict[str, str]:
    """Return the status of each check, by exercise."""
    fields: list[Any] = [out.get("data", {}).get(VERDICT_MIME) for out in outputs]
    return {field["exercise"]: field["status"] for field in fields if field}


def complaints(outputs: Iterable[Output]) -> list[str]:
    """Return the errors and warnings on stderr, progress bars left out."""
    lines = [
        line for out in outputs if out.get("name") == "stderr" for line in out["text"].splitlines()
    ]
    return [line for line in lines if re.search(r"Error|Warning|Traceback", line)]


class _Client(nbclient.NotebookClient):  # type: ignore[misc]
    """A client that shows where a cell hangs before it gives the kernel up."""

    async def _async_handle_timeout(self, *arguments: Any) -> Any:
        print(stacks(), file=sys.stderr)
        return await super()._async_handle_timeout(*arguments)


def execute(notebook: Path, folder: Path, *, env: dict[str, str]) -> Run:
    """Execute `notebook` with `folder` as the working folder and `env` added to the environment."""
    client = _Client(
        nbformat.read(notebook, as_version=4),
        timeout=0.8 * LIMIT_S,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
    )
    start = time.perf_counter()
    # Not client.execute: it leaves its event loop open. In a thread of its own, since the tests
    # that drive a browser keep a loop running in this one.
    with ThreadPoolExecutor(1) as thread:
        work = client.async_execute(env={**os.environ, **env})
        thread.submit(asyncio.run, work).result()
    return Run(client.nb, time.perf_counter() - start)


def execute_cells(*cells: str, folder: Path, env: dict[str, str] | None = None) -> Run:
    """Execute `cells` as one notebook; a cell may raise."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
    for cell in notebook.cells:
        cell.metadata.tags = ["raises-exception"]
    path = folder / "cells.ipynb"
    nbformat.write(notebook, path)
    return execute(path, folder, env=env or {})


def _plain(output: NotebookNode) -> str:
    if output.output_type == "error":
        return "\n".join(output.traceback)
    return str(output.get("data", {}).get("text/plain", ""))
