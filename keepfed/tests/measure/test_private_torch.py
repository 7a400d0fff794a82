"""The list of private torch names is complete, and the installed torch has all of them."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

import keepfed
from keepfed.private_torch import PRIVATE, missing
from tests.measure.datasets import Numbers

PACKAGE = Path(keepfed.__file__).parent
BY_NAME = ("getattr", "hasattr", "setattr", "attrgetter")
# Private names of other libraries and of namedtuples, and attributes that keepfed adds to torch.
ELSEWHERE = {
    "_exit", "_getframe", "_make", "_replace", "_render_traceback_", "_forkserver",
    "_forkserver_pid", "_preload_modules", "_process_children", "_pid", "_strip_protocol",
    "_emulated_pinned", "_trace_batch", "_asdict", "_step_timer", "_connections", "_showtraceback",
    "_fix_co_filename", "_fields", "_cache", "_current_frames",
}  # fmt: skip


@pytest.mark.slow
def test_installed_torch_has_every_private_name() -> None:
    loader = DataLoader(Numbers(4), num_workers=1)
    iterator = iter(loader)
    owners = {"its iterator with workers": iterator, "its iterator": iter(DataLoader(Numbers(4)))}
    assert missing({"torch": torch, "a DataLoader": loader, **owners}) == ()
    list(iterator)


def test_list_contains_every_private_name_in_use() -> None:
    listed = {part for one in PRIVATE for part in one.name.split(".")}
    trees = [ast.parse(path.read_text("utf-8")) for path in PACKAGE.rglob("*.py")]
    own = {name for tree in trees for name in _defined(tree)}
    used = {name for tree in trees for name in _used(tree)}
    assert used - own - ELSEWHERE <= listed


def _private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name != "_"


def _defined(tree: ast.AST) -> Iterator[str]:
    """Yield the names that a file defines, including attributes set with `self.name = ...`."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield from [node.attr] if ast.unparse(node.value) in ("self", "cls") else []


def _used(tree: ast.AST) -> Iterator[str]:
    """Yield the private names that a file imports, or uses as an attribute or a string."""
    for node in ast.walk(tree):
        found: list[str] = []
        if isinstance(node, ast.Attribute):
            found = [node.attr]
        elif isinstance(node, ast.ImportFrom):
            found = [part for name in node.names for part in name.name.split(".")]
            found += (node.module or "").split(".")
        elif isinstance(node, ast.Subscript):
            found = _strings([node.slice])
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in BY_NAME:
            found = _strings(node.args)
        yield from filter(_private, found)


def _strings(nodes: list[ast.expr]) -> list[str]:
    constants = (node.value for node in nodes if isinstance(node, ast.Constant))
    return [part for value in constants if isinstance(value, str) for part in value.split(".")]


def test_list_of_private_names_does_not_import_torch() -> None:
    code = "import sys, keepfed.private_torch; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
