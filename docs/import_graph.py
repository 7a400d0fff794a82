"""Check and draw the imports between the layers and packages of the project: `make imports`.

    python docs/import_graph.py                   # print sizes, cycles and unused definitions
    python docs/import_graph.py docs/imports.svg  # also draw the picture of docs/architecture.md

All imports count, including those inside functions and those for type checking.
"""

from __future__ import annotations

import ast
import graphlib
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from html import escape
from pathlib import Path
from statistics import median
from typing import NamedTuple

from keepfed.palette import DARK, LIGHT

REPO = Path(__file__).resolve().parents[1]
ROOTS = {  # the folder that contains each package
    "course_utils": REPO,
    "data_scripts": REPO,
    "keepfed": REPO / "keepfed/src",
}
FACADES = ("course_utils", "keepfed")  # their `__init__` re-exports names of all layers
# from top to bottom: a layer may import the layers after it
LAYERS = (
    "course_utils.exercises",
    "course_utils.stories",
    "course_utils.command",
    "course_utils.teaching",
    "data_scripts",
    "course_utils.loading",
    "course_utils.hardware",
    "course_utils",
    "keepfed.command",
    "keepfed.auditing",
    "keepfed.loaders",
    "keepfed.device",
    "keepfed.measure",
    "keepfed",
)
# files that users start from; a definition that they do not reach is unused
ENTRY_POINTS = (
    "README.md",
    "docs/**/*.md",
    "docs/*.py",
    "notebooks/*.py",
    "notebooks/source/*.py",
    "benchmarks/**/*.py",
    "tests/gpu/*.py",
    "data_scripts/*.py",
    "course_utils/__init__.py",
    "course_utils/command/*.py",
    "keepfed/src/keepfed/__init__.py",
    "keepfed/src/keepfed/command.py",
)

Graph = Mapping[str, set[str]]


class Module(NamedTuple):
    """A module with the names of the project modules that it imports, and its size."""

    name: str
    path: Path
    imports: frozenset[str]
    lines: int
    import_lines: int

    @property
    def package(self) -> str:
        """Return the name of its package."""
        return self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]


@cache
def modules() -> dict[str, Module]:
    """Read all modules of the project."""
    paths = {
        _name(path, folder): path
        for root, folder in ROOTS.items()
        for path in (folder / root).rglob("*.py")
    }
    return {name: _read(name, path, paths) for name, path in sorted(paths.items())}


def package_imports(project: Mapping[str, Module]) -> dict[str, set[str]]:
    """Return the packages that each package imports, without the facades."""
    graph: dict[str, set[str]] = defaultdict(set)
    for module in project.values():
        if module.name not in FACADES:
            graph[module.package] |= {project[name].package for name in module.imports}
    return {package: others - {package, *FACADES} for package, others in graph.items()}


def find_cycle(graph: Graph) -> list[str]:
    """Return one circular import, or an empty list."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def layer_index(name: str) -> int:
    """Return the index of the layer of a module. A facade belongs to its highest layer."""
    layers = [layer for layer in LAYERS if f"{name}.".startswith(f"{layer}.")]
    if name in FACADES:
        layers = [layer for layer in LAYERS if layer.startswith(f"{name}.")]
    return LAYERS.index(layers[0])


def upward_imports(project: Mapping[str, Module]) -> set[str]:
    """Return a description of every import from a higher layer."""
    return {
        f"{module.name} imports {other}"
        for module in project.values()
        for other in module.imports
        if layer_index(other) < layer_index(module.name)
    }


def dynamic_imports(project: Mapping[str, Module]) -> set[str]:
    """Return a description of every `import_module` call. It may import a higher layer."""
    found = set[str]()
    for module in project.values():
        tree = ast.parse(module.path.read_text("utf-8"))
        constants = {
            target.id: node.value.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            name = getattr(call.func, "attr", getattr(call.func, "id", ""))
            prefix = _prefix(call.args[0], constants) if name == "import_module" else ""
            loaded = prefix.rpartition(".")[0] if prefix not in project else prefix
            known = loaded and any(f"{other}.".startswith(f"{loaded}.") for other in project)
            if known and loaded != module.name:
                found.add(f"{module.name} loads {loaded}")
    return found


def _prefix(name: ast.expr, constants: Mapping[str, object]) -> str:
    """Return the constant prefix of a module name."""
    if isinstance(name, ast.JoinedStr):
        first, *others = name.values
        prefix = _prefix(first, constants)
        return prefix + _prefix(others[0], constants) if prefix and others else prefix
    if isinstance(name, ast.FormattedValue):
        name = name.value
    value: object = name.value if isinstance(name, ast.Constant) else None
    if isinstance(name, ast.Name):
        value = constants.get(name.id)
    return value if isinstance(value, str) else ""


def report(project: Mapping[str, Module]) -> Iterator[str]:
    """Yield the sizes of layers, cycles, upward imports and unused definitions."""
    layers: dict[str, list[Module]] = defaultdict(list)
    for module in project.values():
        layers[_layer(module.name)].append(module)
    yield f"{'layer':28}{'modules':>8}{'lines':>8}{'median':>8}{'imports':>8}"
    for layer, found in sorted(layers.items()):
        lines = [module.lines for module in found]
        imports = sum(module.import_lines for module in found)
        yield f"{layer:28}{len(found):8}{sum(lines):8,}{median(lines):8.0f}{imports:8,}"
    for root in ROOTS:
        found = [module for name, module in project.items() if name.split(".")[0] == root]
        yield f"{root + ', all':28}{len(found):8}{sum(m.lines for m in found):8,}"
    files = {name: set(module.imports) for name, module in project.items()}
    packages = package_imports(project)
    yield f"circular imports of modules:  {' -> '.join(find_cycle(files)) or 'none'}"
    yield f"circular imports of packages: {' -> '.join(find_cycle(packages)) or 'none'}"
    yield f"imports of higher layers:     {'; '.join(sorted(upward_imports(project))) or 'none'}"
    yield f"dynamic imports:              {'; '.join(sorted(dynamic_imports(project))) or 'none'}"
    yield f"unused definitions:           {', '.join(unused_definitions(project)) or 'none'}"


def main(arguments: list[str]) -> int:
    """Print the report, and draw the graph to each path in `arguments`."""
    project = modules()
    print("\n".join(report(project)))
    for path in arguments:
        Path(path).write_text(draw(project), "utf-8")
    return 0


# unused definitions


class Definition(NamedTuple):
    """A top-level function or class, and the names that its code uses."""

    module: str
    name: str
    words: frozenset[str]
    registered: bool  # by a decorator call such as @exercise("07.3")


def unused_definitions(project: Mapping[str, Module]) -> list[str]:
    """Return public functions and classes used only by their own module, `__init__`s and tests.

    The search starts at `ENTRY_POINTS`. If a definition is used, all names in its code and at the
    top level of its module are used too. Definitions with the same name are not distinguished.
    """
    definitions, tops = [], {}
    for module in project.values():
        found, tops[module.name] = _definitions(module)
        definitions += found
    paths = (path for pattern in ENTRY_POINTS for path in REPO.glob(pattern))
    texts = (path.read_text("utf-8") for path in paths)
    words = {word for text in texts for word in re.findall(r"\w+", text)}
    left, seen = definitions, set[str]()
    while reached := [one for one in left if one.registered or one.name in words]:
        left = [one for one in left if one not in reached]
        words |= {word for one in reached for word in one.words}
        for module_name in {one.module for one in reached} - seen:
            seen.add(module_name)
            words |= tops[module_name]
    mine = [one for one in left if not one.module.startswith("data_scripts")]
    return sorted(f"{one.module}.{one.name}" for one in mine if not one.name.startswith("_"))


def _definitions(module: Module) -> tuple[list[Definition], frozenset[str]]:
    """Return the definitions of `module`, and the names in its other top-level code."""
    found, top = [], []
    for node in ast.parse(module.path.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            called = [one.func for one in node.decorator_list if isinstance(one, ast.Call)]
            registered = any(_words([one]).isdisjoint({"dataclass"}) for one in called)
            found.append(Definition(module.name, node.name, _words([node]), registered))
        elif not isinstance(node, ast.Import | ast.ImportFrom):
            top.append(node)
    re_exports = module.path.name == "__init__.py"
    return found, frozenset() if re_exports else _words(top)


def _words(nodes: Iterable[ast.AST]) -> frozenset[str]:
    """Return the names that `nodes` use, including names in strings."""
    found: set[str] = set()
    for node in (inner for outer in nodes for inner in ast.walk(outer)):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names_something = " " not in node.value or "import " in node.value
            found |= set(re.findall(r"\w+" if names_something else r"`(\w+)`", node.value))
    return frozenset(found)


# the picture

WIDTH, LEFT, MARGIN = 980, 172, 10  # pixels
BOX, GAP, CURVES = 48, 8, 30  # pixels: height of a box, gap between boxes, space for curves
STYLE = f"""
.imports{{{LIGHT.css()};
font:12px system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif;max-width:100%;height:auto}}
@media screen and (prefers-color-scheme:dark){{.imports{{{DARK.css()}}}}}
.imports text{{fill:var(--fg);dominant-baseline:middle}}
.imports .soft{{fill:var(--soft);font-size:11px}}
.imports .bold{{font-weight:600}}.imports .name{{font-weight:600;font-size:14px}}
.imports .mid{{text-anchor:middle}}.imports .paper,.imports .box{{fill:var(--bg)}}
.imports .layer{{fill:var(--track)}}.imports .box,.imports .curve{{stroke:var(--soft)}}
.imports .tip{{fill:var(--soft)}}.imports .curve{{fill:none;stroke-width:1.2}}
"""


class Box(NamedTuple):
    """A package in the picture."""

    package: str
    x: float
    y: float
    width: float

    @property
    def middle(self) -> float:
        """Return the x coordinate of its middle."""
        return self.x + self.width / 2


def draw(project: Mapping[str, Module]) -> str:
    """Return the import graph as SVG, with a row for each layer and a box for each package.

    Curves show imports within a layer. Imports of lower layers are not drawn.
    """
    graph, parts = package_imports(project), list[str]()
    y = 40
    for layer in LAYERS:
        mine = sorted({m.package for m in project.values() if _layer(m.name) == layer})
        inner = {package: graph.get(package, set()) & set(mine) for package in mine}
        order = _importers_first(inner)
        height = BOX + 2 * GAP + (CURVES if any(inner.values()) else 0)
        parts += _row(layer, order, inner, project, y, height)
        y += height + 4
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="imports" viewBox="0 0 {WIDTH} {y + 6}" '
        f'width="{WIDTH}" height="{y + 6}" role="img" aria-labelledby="imports-t imports-d">'
        f'<title id="imports-t">Layers and packages of the project</title>'
        f'<desc id="imports-d">{escape(_in_words(project))}</desc><style>{STYLE}</style><defs>'
        '<marker id="imports-tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path class="tip" d="M0 0L8 4L0 8z"/></marker></defs>'
        f'<rect class="paper" width="{WIDTH}" height="100%" rx="8"/>'
        f'<text class="soft" x="{MARGIN}" y="20">A layer may import the layers below it. Curves '
        "show imports between the packages of a layer.</text>"
    )
    return "\n".join([head, *parts, "</svg>\n"])


def _importers_first(graph: Graph) -> list[str]:
    """Sort packages by name, with importers first, so that curves lead to the right."""
    order: list[str] = []
    while left := sorted(graph.keys() - set(order)):
        imported = set().union(*(graph[package] for package in left))
        order.append(next((package for package in left if package not in imported), left[0]))
    return order


def _row(
    layer: str,
    order: list[str],
    inner: Mapping[str, set[str]],
    project: Mapping[str, Module],
    y: int,
    height: int,
) -> Iterator[str]:
    inside = [module for module in project.values() if _layer(module.name) == layer]
    name = layer.rpartition(".")[2] if layer not in FACADES else f"{layer}, base"
    yield f'<rect class="layer" x="4" y="{y}" width="{WIDTH - 8}" height="{height}" rx="5"/>'
    middle = y + GAP + BOX / 2
    yield f'<text class="name" x="{MARGIN + 4}" y="{middle - 9:g}">{name}</text>'
    yield f'<text class="soft" x="{MARGIN + 4}" y="{middle + 9:g}">{_size(inside)}</text>'
    shown = [package for package in order if _files(package, project) or package != layer]
    width = (WIDTH - LEFT - MARGIN + GAP) / max(1, len(shown)) - GAP
    boxes = {
        package: Box(package, LEFT + place * (width + GAP), y + GAP, width)
        for place, package in enumerate(shown)
    }
    for package, others in inner.items():
        yield from (_curve(boxes[package], boxes[other]) for other in sorted(others & set(boxes)))
    for box in boxes.values():
        yield from _box(box, layer, project)


def _box(box: Box, layer: str, project: Mapping[str, Module]) -> Iterator[str]:
    inside = [module for module in project.values() if module.package == box.package]
    files = ", ".join(_files(box.package, project))
    most = int(box.width / 8)
    name = files if box.package == layer else box.package.rpartition(".")[2]
    name = name if len(name) <= most else f"{name[: most - 1].rstrip(', ')}…"
    yield f'<g data-package="{box.package}"><title>{escape(box.package)}: {escape(files)}</title>'
    place = f'x="{box.x:.1f}" y="{box.y}" width="{box.width:.1f}" height="{BOX}" rx="4"'
    yield f'<rect class="box" {place}/>'
    yield f'<text class="bold mid" x="{box.middle:.1f}" y="{box.y + 12}">{escape(name)}</text>'
    count, lines = _size(inside).split(" · ")
    lines = lines if box.width > 56 else lines.removesuffix(" lines")
    for text, below in ((count, 26), (lines, 39)):
        yield f'<text class="soft mid" x="{box.middle:.1f}" y="{box.y + below}">{text}</text>'
    yield "</g>"


def _curve(importer: Box, imported: Box) -> str:
    y, depth = importer.y + BOX, min(1.25 * CURVES, 9 + abs(imported.middle - importer.middle) / 10)
    aside = 6 if imported.middle > importer.middle else -6
    start, end = importer.middle + aside, imported.middle - aside
    curve = (
        f"M{start:.1f} {y}C{start:.1f} {y + depth:.1f} {end:.1f} {y + depth:.1f} {end:.1f} {y + 2}"
    )
    return f'<path class="curve" d="{curve}" marker-end="url(#imports-tip)"/>'


def _files(package: str, project: Mapping[str, Module]) -> list[str]:
    """Return the modules of a package, without `__init__` and without subpackages."""
    found = (module for module in project.values() if module.package == package)
    return [module.path.stem for module in found if module.path.stem != "__init__"]


def _size(found: list[Module]) -> str:
    count = f"{len(found)} file{'' if len(found) == 1 else 's'}"
    return f"{count} · {sum(module.lines for module in found):,} lines"


def _in_words(project: Mapping[str, Module]) -> str:
    """Return the layers and their sizes, from top to bottom, as the description of the picture."""
    layers = {layer: [m for m in project.values() if _layer(m.name) == layer] for layer in LAYERS}
    return "; ".join(f"{name.rpartition('.')[2]}: {_size(found)}" for name, found in layers.items())


# reading the files


def _layer(name: str) -> str:
    return name if name in FACADES else LAYERS[layer_index(name)]


def _name(path: Path, folder: Path) -> str:
    parts = path.relative_to(folder).with_suffix("").parts
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
        if inner in known and not _re_exports(known.get(package), alias.name):
            yield inner
        elif package in known:
            yield package


def _re_exports(package: Path | None, name: str) -> bool:
    """Return whether a package re-exports a name, which may also be the name of its module."""
    found = package.read_text("utf-8") if package else ""
    return re.search(rf"import .*\b{name}\b|^    {name},$", found, re.M) is not None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
