"""Measure the house from its own imports: `make house` prints it, and draws it for the map.

    python docs/house.py                # a table of rooms, and what is wrong with the walls
    python docs/house.py docs/house.svg # the same, and the picture of docs/architecture.md

Every import counts, wherever it stands: at the top, in a function, or for the types alone.
"""

from __future__ import annotations

import ast
import graphlib
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import NamedTuple

REPO = Path(__file__).resolve().parents[1]
ROOTS = ("course_utils", "data_scripts", "notebooks/exercises", "notebooks/stories")
# each may import those after it; `command` and `course_utils` itself stand above all but exercises
FLOORS = (
    "notebooks.exercises",
    "notebooks.stories",
    "course_utils.command",
    "course_utils.teaching",
    "data_scripts",
    "course_utils.loading",
    "course_utils.hardware",
    "course_utils.measure",
)

Graph = Mapping[str, set[str]]


class Module(NamedTuple):
    """One file: what it is called, which of our modules it imports, and how long it is."""

    name: str
    path: Path
    imports: frozenset[str]
    lines: int
    import_lines: int

    @property
    def folder(self) -> str:
        """Return the package that it lies in."""
        return self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]


def modules() -> dict[str, Module]:
    """Read every module of the house."""
    paths = {_name(path): path for root in ROOTS for path in (REPO / root).rglob("*.py")}
    return {name: _read(name, path, paths) for name, path in sorted(paths.items())}


def folders(house: Mapping[str, Module]) -> dict[str, set[str]]:
    """Return which folders each folder imports; the names at the very bottom lie in none."""
    graph: dict[str, set[str]] = defaultdict(set)
    for module in house.values():
        if module.name != "course_utils":
            graph[module.folder] |= {house[name].folder for name in module.imports}
    return {folder: others - {folder, "course_utils"} for folder, others in graph.items()}


def circle(graph: Graph) -> list[str]:
    """Return one circle of imports, or nothing."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def floor(name: str) -> int:
    """Return on which floor a module lives; -1: at the very bottom, or at the very top."""
    return next((i for i, room in enumerate(FLOORS) if f"{name}.".startswith(f"{room}.")), -1)


def wrong_ways(house: Mapping[str, Module]) -> set[str]:
    """Name every import that leads upstairs."""
    return {
        f"{module.name} imports {other}"
        for module in house.values()
        for other in module.imports
        if module.name != "course_utils"
        and (floor(other) < floor(module.name) if floor(other) >= 0 else other == "course_utils")
    }


def report(house: Mapping[str, Module]) -> Iterator[str]:
    """Yield the table: modules and lines of each room, entries of each folder, circles."""
    rooms: dict[str, list[Module]] = defaultdict(list)
    for module in house.values():
        rooms[_room(module.name)].append(module)
    yield f"{'room':28}{'modules':>8}{'lines':>8}{'median':>8}{'imports':>8}"
    for room, found in sorted(rooms.items()):
        lines = [module.lines for module in found]
        imports = sum(module.import_lines for module in found)
        yield f"{room:28}{len(found):8}{sum(lines):8,}{median(lines):8.0f}{imports:8,}"
    for title, prefix in (("course_utils", "course_utils"), ("notebooks", "notebooks")):
        found = [module for name, module in house.items() if name.startswith(prefix)]
        yield f"{title + ', all':28}{len(found):8}{sum(m.lines for m in found):8,}"
    yield ""
    sizes: dict[str, int] = defaultdict(int)
    for module in house.values():
        sizes[module.folder] += 1
    yield f"{'folder':36}{'modules':>8}"
    for folder, count in sorted(sizes.items()):
        yield f"{folder:36}{count:8}"
    yield ""
    files = {name: set(module.imports) for name, module in house.items()}
    yield f"circle of files:   {' -> '.join(circle(files)) or 'none'}"
    yield f"circle of folders: {' -> '.join(circle(folders(house))) or 'none'}"
    yield f"imports upstairs:  {'; '.join(sorted(wrong_ways(house))) or 'none'}"


def main(arguments: list[str]) -> int:
    """Print the report."""
    house = modules()
    print("\n".join(report(house)))
    return 0


def _room(name: str) -> str:
    index = floor(name)
    return FLOORS[index] if index >= 0 else "course_utils"


def _name(path: Path) -> str:
    parts = path.relative_to(REPO).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _read(name: str, path: Path, known: Mapping[str, Path]) -> Module:
    text = path.read_text("utf-8")
    nodes = list(ast.walk(ast.parse(text)))
    statements = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    found = {other for node in statements for other in _imported(node, known)} - {name}
    lines = sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in statements)
    return Module(name, path, frozenset(found), len(text.splitlines()), lines)


def _imported(node: ast.Import | ast.ImportFrom, known: Mapping[str, Path]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in known)
        return
    for alias in node.names:
        package = node.module or ""
        inner = f"{package}.{alias.name}"
        if inner in known and not _hands_on(known.get(package), alias.name):
            yield inner
        elif package in known:
            yield package


def _hands_on(package: Path | None, name: str) -> bool:
    """Tell a function that a package hands on from a module of the same name in it."""
    return package is not None and f'"{name}"' in package.read_text("utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
