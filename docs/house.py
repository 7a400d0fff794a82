"""Measure the house from its own imports: `make house` prints it, and draws it for the map.

    python docs/house.py                 # rooms, folders, holes in the walls, what nobody uses
    python docs/house.py docs/house.svg  # the same, and the picture of docs/architecture.md

Every import counts, wherever it stands: at the top, in a function, or for the types alone.
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

REPO = Path(__file__).resolve().parents[1]
ROOTS = ("course_exercises", "course_stories", "course_data", "course_utils", "keepfed")
DOORS = ("course_utils", "keepfed")  # their own `__init__` hands on names from all rooms
# each may import those after it
FLOORS = (
    "course_exercises",
    "course_stories",
    "course_utils.command",
    "course_utils.teaching",
    "course_data",
    "course_utils.loading",
    "course_utils.hardware",
    "course_utils",
    "keepfed.command",
    "keepfed.loaders",
    "keepfed.device",
    "keepfed.measure",
    "keepfed",
)
# what people start from; whatever of the house it does not lead to, nobody needs
STARTS = (
    "README.md",
    "docs/**/*.md",
    "docs/*.py",
    "notebooks/*.py",
    "notebooks/source/*.py",
    "benchmarks/**/*.py",
    "tests/gpu/*.py",
    "course_data/*.py",
    "course_utils/__init__.py",
    "course_utils/command/*.py",
    "keepfed/__init__.py",
    "keepfed/command.py",
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


@cache
def modules() -> dict[str, Module]:
    """Read every module of the house."""
    paths = {_name(path): path for root in ROOTS for path in (REPO / root).rglob("*.py")}
    return {name: _read(name, path, paths) for name, path in sorted(paths.items())}


def folders(house: Mapping[str, Module]) -> dict[str, set[str]]:
    """Return which folders each folder imports; the names at the very bottom lie in none."""
    graph: dict[str, set[str]] = defaultdict(set)
    for module in house.values():
        if module.name not in DOORS:
            graph[module.folder] |= {house[name].folder for name in module.imports}
    return {folder: others - {folder, *DOORS} for folder, others in graph.items()}


def circle(graph: Graph) -> list[str]:
    """Return one circle of imports, or nothing."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def floor(name: str) -> int:
    """Return on which floor a module lives; a door is on the highest floor of its house."""
    rooms = [room for room in FLOORS if f"{name}.".startswith(f"{room}.")]
    if name in DOORS:
        rooms = [room for room in FLOORS if room.startswith(f"{name}.")]
    return FLOORS.index(rooms[0])


def wrong_ways(house: Mapping[str, Module]) -> set[str]:
    """Name every import that leads upstairs."""
    return {
        f"{module.name} imports {other}"
        for module in house.values()
        for other in module.imports
        if floor(other) < floor(module.name)
    }


def plug_ins(house: Mapping[str, Module]) -> set[str]:
    """Name what modules load by name, with `import_module`: that may lead upstairs."""
    found = set[str]()
    for module in house.values():
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
            begins = _begins(call.args[0], constants) if name == "import_module" else ""
            loaded = begins.rpartition(".")[0] if begins not in house else begins
            known = loaded and any(other.startswith(f"{loaded}.") for other in house)
            if known and loaded != module.name:
                found.add(f"{module.name} loads {loaded}")
    return found


def _begins(name: ast.expr, constants: Mapping[str, object]) -> str:
    """Return how the name of a module begins, as far as the code says it."""
    if isinstance(name, ast.JoinedStr):
        first, *others = name.values
        begins = _begins(first, constants)
        return begins + _begins(others[0], constants) if begins and others else begins
    if isinstance(name, ast.FormattedValue):
        name = name.value
    value: object = name.value if isinstance(name, ast.Constant) else None
    if isinstance(name, ast.Name):
        value = constants.get(name.id)
    return value if isinstance(value, str) else ""


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
    for root in ROOTS:
        found = [module for name, module in house.items() if name.split(".")[0] == root]
        yield f"{root + ', all':28}{len(found):8}{sum(m.lines for m in found):8,}"
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
    yield f"loaded by name:    {'; '.join(sorted(plug_ins(house))) or 'none'}"
    yield f"used by nobody:    {', '.join(unreached(house)) or 'none'}"


def main(arguments: list[str]) -> int:
    """Print the report; given a path, draw the house there."""
    house = modules()
    print("\n".join(report(house)))
    for path in arguments:
        Path(path).write_text(drawing(house), "utf-8")
    return 0


# what nobody reaches


class Definition(NamedTuple):
    """A public function or class at the top of a module, and the words that its code uses."""

    module: str
    name: str
    words: frozenset[str]
    registered: bool  # by a decorator that is called, such as @exercise("07.3")


def unreached(house: Mapping[str, Module]) -> list[str]:
    """Name the public functions and classes that only their own module, `__init__`s and tests use.

    From `STARTS` on, whatever a reached definition names is reached, and so is all that the top
    level of its module names. A name counts wherever it stands: two things of one name are reached
    together.
    """
    definitions, tops = [], {}
    for module in house.values():
        found, tops[module.name] = _definitions(module)
        definitions += found
    texts = (path.read_text("utf-8") for start in STARTS for path in REPO.glob(start))
    words = {word for text in texts for word in re.findall(r"\w+", text)}
    left, seen = definitions, set[str]()
    while reached := [one for one in left if one.registered or one.name in words]:
        left = [one for one in left if one not in reached]
        words |= {word for one in reached for word in one.words}
        for module_name in {one.module for one in reached} - seen:
            seen.add(module_name)
            words |= tops[module_name]
    mine = [one for one in left if not one.module.startswith("course_data")]
    return sorted(f"{one.module}.{one.name}" for one in mine if not one.name.startswith("_"))


def _definitions(module: Module) -> tuple[list[Definition], frozenset[str]]:
    """Return what `module` defines, and the words of all else at its top level."""
    found, top = [], []
    for node in ast.parse(module.path.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            called = [one.func for one in node.decorator_list if isinstance(one, ast.Call)]
            registered = any(_words([one]).isdisjoint({"dataclass"}) for one in called)
            found.append(Definition(module.name, node.name, _words([node]), registered))
        elif not isinstance(node, ast.Import | ast.ImportFrom):
            top.append(node)
    hands_on = module.path.name == "__init__.py"
    return found, frozenset() if hands_on else _words(top)


def _words(nodes: Iterable[ast.AST]) -> frozenset[str]:
    """Return the names in some code: those that it uses, also in strings, or offers in words."""
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
BOX, GAP, CURVES = 48, 8, 30  # height of a box, space between boxes, room for curves below them
STYLE = """
.house{--fg:#1b1f24;--soft:#5b6570;--bg:#ffffff;--floor:#f3f5f7;--line:#8a939e;--box:#ffffff;
font:12px system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif;max-width:100%;height:auto}
@media screen and (prefers-color-scheme:dark){.house{--fg:#f2f4f7;--soft:#a8b0ba;--bg:#15181c;
--floor:#20252b;--line:#7b8590;--box:#15181c}}
.house text{fill:var(--fg);dominant-baseline:middle}.house .soft{fill:var(--soft);font-size:11px}
.house .bold{font-weight:600}.house .room{font-weight:600;font-size:14px}
.house .mid{text-anchor:middle}.house .paper{fill:var(--bg)}.house .floor{fill:var(--floor)}
.house .box{fill:var(--box);stroke:var(--line)}.house .tip{fill:var(--line)}
.house .curve{fill:none;stroke:var(--line);stroke-width:1.2}
"""


class Box(NamedTuple):
    """A folder in the picture."""

    folder: str
    x: float
    y: float
    width: float

    @property
    def middle(self) -> float:
        """Return the x of its middle."""
        return self.x + self.width / 2


def drawing(house: Mapping[str, Module]) -> str:
    """Return the house as SVG: floors below each other, a box for each folder.

    That a floor imports those below it is understood; drawn is which folder of a floor imports
    which other one of it.
    """
    graph, parts = folders(house), list[str]()
    y = 40
    for room in FLOORS:
        mine = sorted({module.folder for module in house.values() if _room(module.name) == room})
        beside = {folder: graph.get(folder, set()) & set(mine) for folder in mine}
        order = _importers_first(beside)
        height = BOX + 2 * GAP + (CURVES if any(beside.values()) else 0)
        parts += _floor(room, order, beside, house, y, height)
        y += height + 4
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="house" viewBox="0 0 {WIDTH} {y + 6}" '
        f'width="{WIDTH}" height="{y + 6}" role="img" aria-labelledby="house-t house-d">'
        f'<title id="house-t">The house: its floors and folders</title>'
        f'<desc id="house-d">{escape(_in_words(house))}</desc><style>{STYLE}</style><defs>'
        '<marker id="house-tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path class="tip" d="M0 0L8 4L0 8z"/></marker></defs>'
        f'<rect class="paper" width="{WIDTH}" height="100%" rx="8"/>'
        f'<text class="soft" x="{MARGIN}" y="20">Every floor may import those below it; a curve '
        "shows which folder imports another one of its own floor.</text>"
    )
    return "\n".join([head, *parts, "</svg>\n"])


def _importers_first(graph: Graph) -> list[str]:
    """Return the folders by name, but none before its importers: curves lead to the right."""
    order: list[str] = []
    while left := sorted(graph.keys() - set(order)):
        imported = set().union(*(graph[folder] for folder in left))
        order.append(next((folder for folder in left if folder not in imported), left[0]))
    return order


def _floor(
    room: str,
    order: list[str],
    beside: Mapping[str, set[str]],
    house: Mapping[str, Module],
    y: int,
    height: int,
) -> Iterator[str]:
    inside = [module for module in house.values() if _room(module.name) == room]
    name = room.rpartition(".")[2] if room not in DOORS else f"{room}, bottom"
    yield f'<rect class="floor" x="4" y="{y}" width="{WIDTH - 8}" height="{height}" rx="5"/>'
    middle = y + GAP + BOX / 2
    yield f'<text class="room" x="{MARGIN + 4}" y="{middle - 9:g}">{name}</text>'
    yield f'<text class="soft" x="{MARGIN + 4}" y="{middle + 9:g}">{_size(inside)}</text>'
    shown = [folder for folder in order if _files(folder, house) or folder != room]
    width = (WIDTH - LEFT - MARGIN + GAP) / max(1, len(shown)) - GAP
    boxes = {
        folder: Box(folder, LEFT + place * (width + GAP), y + GAP, width)
        for place, folder in enumerate(shown)
    }
    for folder, others in beside.items():
        yield from (_curve(boxes[folder], boxes[other]) for other in sorted(others & set(boxes)))
    for box in boxes.values():
        yield from _box(box, room, house)


def _box(box: Box, room: str, house: Mapping[str, Module]) -> Iterator[str]:
    inside = [module for module in house.values() if module.folder == box.folder]
    files = ", ".join(_files(box.folder, house))
    most = int(box.width / 8)
    name = files if box.folder == room else box.folder.rpartition(".")[2]
    name = name if len(name) <= most else f"{name[: most - 1].rstrip(', ')}…"
    yield f'<g data-folder="{box.folder}"><title>{escape(box.folder)}: {escape(files)}</title>'
    place = f'x="{box.x:.1f}" y="{box.y}" width="{box.width:.1f}" height="{BOX}" rx="4"'
    yield f'<rect class="box" {place}/>'
    yield f'<text class="bold mid" x="{box.middle:.1f}" y="{box.y + 12}">{escape(name)}</text>'
    count, lines = _size(inside).split(" · ")
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
    return f'<path class="curve" d="{curve}" marker-end="url(#house-tip)"/>'


def _files(folder: str, house: Mapping[str, Module]) -> list[str]:
    """Return the modules of a folder that stand in no folder below it, without `__init__`."""
    found = (module for module in house.values() if module.folder == folder)
    return [module.path.stem for module in found if module.path.stem != "__init__"]


def _size(found: list[Module]) -> str:
    count = f"{len(found)} file{'' if len(found) == 1 else 's'}"
    return f"{count} · {sum(module.lines for module in found):,} lines"


def _in_words(house: Mapping[str, Module]) -> str:
    """Return the floors and their sizes, from the top down, for who cannot see the picture."""
    rooms = {room: [m for m in house.values() if _room(m.name) == room] for room in FLOORS}
    return "; ".join(f"{room.rpartition('.')[2]}: {_size(found)}" for room, found in rooms.items())


# reading the files


def _room(name: str) -> str:
    return name if name in DOORS else FLOORS[floor(name)]


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
    found = package.read_text("utf-8") if package else ""
    return re.search(rf"import .*\b{name}\b|^    {name},$", found, re.M) is not None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
