"""The house as a whole: its public names, what an import costs, and which room leads to which."""

import ast
import graphlib
import importlib.metadata
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import course_utils
from course_utils.paths import REPO

MODULES = sorted([*(REPO / "course_utils").rglob("*.py"), *(REPO / "data_scripts").rglob("*.py")])
OURS = {"course_utils", "data_scripts"}
ROOMS: dict[str, set[str]] = {
    "measure": set(),
    "hardware": {"measure.trace"},
    "loading": {"measure.trace", "hardware"},
    "teaching": {"measure", "hardware", "loading"},
}
SHARED = {f"course_utils{name}" for name in ("", ".errors", ".paths", ".start_method")}


def name_of(module: Path) -> str:
    parts = module.relative_to(REPO).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(module: Path, *, at_once: bool = False) -> Iterator[str]:
    """Yield which modules of ours a module imports, or only those that it imports at once.

    What is imported for the types alone does not count.
    """
    skipped: tuple[type[ast.AST], ...] = (ast.FunctionDef,) if at_once else ()
    branches: list[ast.AST] = [ast.parse(module.read_text("utf-8"))]
    while branches:
        node = branches.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        branches.extend(child for child in ast.iter_child_nodes(node) if type(child) not in skipped)
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in NAMES)
        elif isinstance(node, ast.ImportFrom) and node.module in NAMES:
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name if name in NAMES else str(node.module) for name in names)


NAMES = {name_of(module) for module in MODULES}


def test_the_public_names_are_these() -> None:
    assert course_utils.__all__ == [
        "Pipeline",
        "check",
        "cleanup_workers",
        "data_path",
        "diagnose",
        "explorer",
        "get_accelerator",
        "predict",
        "ready",
        "record",
        "reveal",
        "simulate",
        "slow_storage",
        "stage",
        "start_workers",
    ]
    assert course_utils.__all__ == sorted(course_utils.__all__)
    assert len(course_utils.__all__) <= 16


@pytest.mark.parametrize("name", course_utils.__all__)
def test_a_public_name_is_there_and_documented(name: str) -> None:
    assert getattr(course_utils, name).__doc__
    assert name in dir(course_utils)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        course_utils.nothing  # noqa: B018


@pytest.mark.parametrize("module", ["course_utils", "course_utils.cli"])
def test_an_import_takes_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"torch", "numpy", "matplotlib", "IPython", "anywidget", "jupyter_server", "pyarrow"}
    assert heavy.isdisjoint(run.stdout.split())


@pytest.mark.parametrize("module", MODULES, ids=name_of)
def test_a_module_can_be_read_in_one_sitting(module: Path) -> None:
    assert len(module.read_text("utf-8").splitlines()) <= 250


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_leads_only_where_it_may(room: str) -> None:
    rooms = tuple(f"course_utils.{other}." for other in (room, *ROOMS[room]))
    wrong = {
        f"{name_of(module)} imports {name}"
        for module in (REPO / "course_utils" / room).rglob("*.py")
        for name in imports_of(module)
        if name not in SHARED and not f"{name}.".startswith(rooms)
    }
    assert wrong == set()


def test_no_imports_run_in_a_circle() -> None:
    graph = {name_of(module): set(imports_of(module, at_once=True)) for module in MODULES}
    graphlib.TopologicalSorter(graph).prepare()  # names the circle if there is one


def test_every_package_that_is_imported_is_declared() -> None:
    project = tomllib.loads((REPO / "pyproject.toml").read_text("utf-8"))["project"]
    declared = {Requirement(line).name for line in project["dependencies"]}
    homes = {
        package: {canonicalize_name(name) for name in names}
        for package, names in importlib.metadata.packages_distributions().items()
    }
    undeclared = {
        f"{name_of(module)} imports {name}"
        for module in MODULES
        for node in ast.walk(ast.parse(module.read_text("utf-8")))
        for name in plain_imports(node)
        if name not in sys.stdlib_module_names | OURS and declared.isdisjoint(homes[name])
    }
    assert undeclared == set()


def plain_imports(node: ast.AST) -> set[str]:
    modules = []
    if isinstance(node, ast.Import):
        modules = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        modules = [node.module or ""]
    return {module.partition(".")[0] for module in modules}
