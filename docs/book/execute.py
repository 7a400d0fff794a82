"""Run each notebook with its solutions, and cache the outputs.

The outputs are used again until the code of the notebook or a file of our packages changes.
Changes in the text of a notebook do not matter.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

from course_utils.paths import REPO, data_root
from course_utils.teaching.exercise import VERDICT_MIME

KEPT = Path(__file__).with_name("executed")
TRIES = 3
LONGEST_CELL_S = 600  # seconds, because the machine may be busy
_LIBRARIES = re.compile(r"(?:/[\w.+-]+)+/(?=(?:site-packages|python3\.\d+)/)")
_SHOWS = [Path(__file__).with_name(name) for name in ("in_kernel.py", "plots.py")]
PACKAGES = ("course_utils", "data_scripts", "keepfed/src/keepfed")
SOURCES = {".py", ".js", ".css", ".toml", ".html", ".mplstyle", ".sh"}


def run_changed(paths: Iterable[Path]) -> Iterator[str]:
    """Run the notebooks whose outputs are not in the cache.

    Yield a sentence for each notebook in which a check rejected a solution in all tries. Its
    outputs are not cached.
    """
    for path in paths:
        notebook: NotebookNode = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
        kept = KEPT / f"{path.stem}.{fingerprint(notebook)}.json"
        if kept.exists():
            continue
        for _ in range(TRIES):
            print(f"Running {path.stem}, which can take some minutes", flush=True)
            run(notebook)
            if not (rejected := rejected_solutions(notebook)):
                _keep([cell.outputs for cell in _code(notebook)], kept)
                break
        else:
            yield f"{path.stem}: the check rejected our solution of {', '.join(rejected)}."


def with_outputs(path: Path) -> NotebookNode:
    """Return a notebook with the outputs of its latest run, if there are any."""
    notebook: NotebookNode = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    for kept in KEPT.glob(f"{path.stem}.*.json"):
        outputs = json.loads(without_local_paths(kept.read_text("utf-8")))
        if len(outputs) == len(_code(notebook)):
            for cell, shown in zip(_code(notebook), outputs, strict=True):
                cell.outputs = nbformat.from_dict(shown)  # type: ignore[no-untyped-call]
    return notebook


def fingerprint(notebook: NotebookNode) -> str:
    """Return a hash of everything that the outputs depend on, except the machine."""
    code = "\0".join(cell.source for cell in _code(notebook))
    parts = [code.encode(), *(path.read_bytes() for path in _SHOWS), _packages()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:12]


@cache
def _packages() -> bytes:
    return digest_of(REPO)


def digest_of(root: Path) -> bytes:
    """Return a digest of all files of our packages."""
    digest = hashlib.sha256()
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*")):
            if path.is_file() and path.suffix in SOURCES:
                digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.digest()


def without_local_paths(outputs: str) -> str:
    """Return `outputs` with `…` instead of this machine's folders of data and libraries."""
    data = json.dumps(str(data_root()))[1:-1]
    return _LIBRARIES.sub("…/", outputs.replace(data, f"…/{data_root().name}"))


def rejected_solutions(notebook: NotebookNode) -> list[str]:
    """Return the exercises whose check rejected the solution, e.g. after a slow run."""
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", ())]
    verdicts = [out.data[VERDICT_MIME] for out in outputs if VERDICT_MIME in out.get("data", {})]
    return [verdict["exercise"] for verdict in verdicts if verdict["status"] != "right"]


def run(notebook: NotebookNode) -> None:
    """Run a notebook in a temporary folder, with the small data."""
    environment = {
        **os.environ,
        "COURSE_DATA": str(data_root()),
        "COURSE_SIZE": "S",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(REPO), os.environ.get("PYTHONPATH")])),
    }
    with TemporaryDirectory(prefix="book-") as folder:
        client = NotebookClient(
            notebook,
            timeout=LONGEST_CELL_S,
            kernel_name="python3",
            record_timing=False,
            store_widget_state=False,
            # hide the warning about unencrypted connections, which stay on this machine
            extra_arguments=["--ext=docs.book.in_kernel", "--log-level=ERROR"],
            resources={"metadata": {"path": folder}},
        )
        client.execute(env=environment)


def _code(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def _keep(outputs: list[list[NotebookNode]], path: Path) -> None:
    """Write the outputs of a notebook atomically, and remove its older outputs."""
    path.parent.mkdir(exist_ok=True)
    for older in path.parent.glob(f"{path.name.partition('.')[0]}.*"):
        older.unlink()
    unfinished = path.with_suffix(".part")
    unfinished.write_text(json.dumps(outputs, indent=1, ensure_ascii=False), "utf-8")
    unfinished.replace(path)
