"""Copy the notebooks to a learner's folder, and never overwrite a notebook with changes."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_utils.errors import INSTALL_AGAIN, CourseError
from keepfed.files import replace_file

_MANIFEST = ".handed_out.json"


@dataclass(frozen=True)
class HandedOut:
    """Names of the notebooks that were copied, updated, or kept because they have changes."""

    new: tuple[str, ...]
    refreshed: tuple[str, ...]
    kept: tuple[str, ...]


def hand_out(shipped: Path, work: Path) -> HandedOut:
    """Copy the notebooks in `shipped` to `work`, and keep notebooks there that have changes."""
    notebooks = _notebooks(shipped)
    work.mkdir(parents=True, exist_ok=True)
    before = _load(work)
    handed_out = before.copy()
    new, refreshed, kept = [], [], []
    for notebook in notebooks:
        name, version, copy = notebook.name, _digest(notebook), work / notebook.name
        own = _digest(copy) if copy.exists() else None
        if own is None:
            new.append(name)
        elif own == handed_out.get(name) != version:
            refreshed.append(name)
        elif version not in (own, handed_out.get(name)):
            kept.append(name)
        if name in (*new, *refreshed):
            replace_file(copy, _for_lab(notebook))
        if name not in kept:
            handed_out[name] = version
    if handed_out != before:
        _save(work, handed_out)
    return HandedOut(tuple(new), tuple(refreshed), tuple(kept))


def _notebooks(shipped: Path) -> list[Path]:
    notebooks = sorted(shipped.glob("*.ipynb"))
    if not notebooks:
        raise CourseError(f"{shipped} has no notebooks. To fix this, {INSTALL_AGAIN}.")
    return notebooks


def _for_lab(notebook: Path) -> bytes:
    """Return a notebook without the cell that installs the course on Colab."""
    content = notebook.read_bytes()
    try:
        data = json.loads(content)
        kept = [cell for cell in data["cells"] if not _is_for_colab(cell)]
    except (ValueError, KeyError, TypeError):
        return content
    if len(kept) == len(data["cells"]):
        return content
    return (json.dumps({**data, "cells": kept}, indent=1, ensure_ascii=False) + "\n").encode()


def _is_for_colab(cell: dict[str, Any]) -> bool:
    return "colab" in cell.get("metadata", {}).get("tags", ())


def _digest(notebook: Path) -> str:
    """Hash what a learner may have changed. JupyterLab rewrites the rest on opening a file."""
    content = notebook.read_bytes()
    try:
        cells = [
            (cell["cell_type"], "".join(cell["source"]), cell.get("outputs") or [])
            for cell in json.loads(content)["cells"]
            if not _is_for_colab(cell)
        ]
        content = json.dumps(cells, sort_keys=True).encode()
    except (ValueError, KeyError, TypeError):
        pass  # not a notebook, so every byte counts
    return hashlib.sha256(content).hexdigest()


def _load(work: Path) -> dict[str, str]:
    try:
        loaded: Any = json.loads((work / _MANIFEST).read_text("utf-8"))
    except (OSError, ValueError):
        return {}  # every copy that differs counts as changed, and is kept
    return loaded if isinstance(loaded, dict) else {}


def _save(work: Path, handed_out: dict[str, str]) -> None:
    text = json.dumps(handed_out, indent=1, sort_keys=True) + "\n"
    replace_file(work / _MANIFEST, text)
