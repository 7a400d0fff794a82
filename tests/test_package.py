import ast
import importlib.metadata
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import course_utils
from course_utils.errors import INSTALL_AGAIN
from course_utils.paths import REPO
from docs.import_graph import (
    ROOTS,
    draw,
    dynamic_imports,
    find_cycle,
    modules,
    package_imports,
    unused_definitions,
    upward_imports,
)
from tests.fixtures import run_python

LIMIT = 12  # maximum number of entries in a folder
COURSE = ("notebook", "images", "colab", "later", "course")  # the extras of the course
# pins its optional imports, and installs them in separate environments
ON_DEMAND = "course_utils.stories.peers.libraries"


def test_public_names_are_complete_and_documented() -> None:
    names = """Pipeline check cleanup_workers data_path diagnose emulated_cuda explorer
        get_accelerator predict ready record reveal simulate slow_storage stage watch"""
    assert course_utils.__all__ == names.split()
    for name in course_utils.__all__:
        assert getattr(course_utils, name).__doc__, name
        assert name in dir(course_utils), name


def test_import_loads_no_heavy_modules() -> None:
    for module in ("course_utils", "course_utils.command.cli"):
        heavy = {"torch", "numpy", "matplotlib", "IPython", "anywidget", "jupyter_server"}
        assert (heavy | {"pyarrow"}).isdisjoint(loaded_by(module)), module


@pytest.mark.slow
def test_gpu_tools_need_only_torch_and_numpy() -> None:
    tools = "exchange.chrome", "spans", "trace"
    loaded = loaded_by("course_utils.hardware.gpu", *(f"keepfed.measure.{tool}" for tool in tools))
    ours = {"anywidget", "fsspec", "h5py", "IPython", "matplotlib", "psutil", "threadpoolctl"}
    assert ours.isdisjoint(loaded)


def loaded_by(*names: str) -> list[str]:
    code = f"import sys, {', '.join(names)}; print(*sys.modules)"
    return run_python("-c", code, check=True).stdout.split()


def test_imports_follow_the_layers_without_circles() -> None:
    assert find_cycle({name: set(module.imports) for name, module in modules().items()}) == []
    assert find_cycle({"a": {"b"}, "b": {"a"}})
    assert find_cycle(package_imports(modules())) == []
    assert upward_imports(modules()) == set()


def test_class_names_are_unique() -> None:
    homes = Counter(
        node.name
        for module in modules().values()
        for node in ast.walk(ast.parse(module.path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert {name for name, count in homes.items() if count > 1} == set()


def test_dynamic_imports_from_higher_layers_are_listed() -> None:
    assert dynamic_imports(modules()) == {
        "course_utils.teaching.exercise loads course_utils.exercises",
        "course_utils.teaching.notebook.start loads data_scripts",
        "course_utils.stories.lecture.show loads course_utils.stories.lecture.programs",
        "course_utils.command.cli loads course_utils.stories.wall.server",
        "course_utils.command.cli loads course_utils.stories.lecture",
    }


def test_folders_have_few_entries() -> None:
    entries = Counter(module.package for module in modules().values())
    assert {folder: count for folder, count in entries.items() if count > LIMIT} == {}


def test_import_graph_has_a_box_for_every_package() -> None:
    drawn = re.findall('data-package="(.*?)"', (REPO / "docs/imports.svg").read_text("utf-8"))
    shown = re.findall('data-package="(.*?)"', draw(modules()))
    assert sorted(drawn) == sorted(shown), "Run: python docs/import_graph.py docs/imports.svg"
    assert {m.package for m in modules().values() if m.path.stem != "__init__"} <= {*shown}


def test_all_definitions_are_used() -> None:
    assert unused_definitions(modules()) == []


def test_every_imported_package_is_declared() -> None:
    own, keepfed = (
        tomllib.loads((REPO / folder / "pyproject.toml").read_text("utf-8"))["project"]
        for folder in ("", "keepfed")
    )
    extras = own["optional-dependencies"] | keepfed["optional-dependencies"]
    # torch is there and brings filelock and fsspec, and without tqdm there is no progress bar
    light = declared(keepfed["dependencies"]) | {"torch", "filelock", "fsspec", "tqdm"}
    allowed = {
        "keepfed.measure.picture.timeline": light | declared(extras["notebook"]),
        "keepfed.loaders.images": light | declared(extras["images"]),
        "keepfed": light,
        "course": light.union(*(declared(extras[e]) for e in COURSE)),
        "data_scripts": light.union(*(declared(extras[e]) for e in (*COURSE, "cluster"))),
    }
    undeclared = {
        f"{module.name} imports {name}"
        for module in modules().values()
        if module.name != ON_DEMAND
        for node in ast.walk(ast.parse(module.path.read_text("utf-8")))
        for name in plain_imports(node)
        if name not in sys.stdlib_module_names | set(ROOTS)
        and allowed[longest(module.name, allowed)].isdisjoint(HOMES.get(name, {name}))
    }
    assert undeclared == set()


HOMES = {
    package: {canonicalize_name(name) for name in names}
    for package, names in importlib.metadata.packages_distributions().items()
}


def declared(lines: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(line).name) for line in lines}


def longest(name: str, beginnings: Iterable[str]) -> str:
    return max((one for one in beginnings if name.startswith(one)), key=len)


def plain_imports(node: ast.AST) -> set[str]:
    modules = []
    if isinstance(node, ast.Import):
        modules = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        modules = [node.module or ""]
    return {module.partition(".")[0] for module in modules}


@pytest.mark.slow
def test_course_without_its_packages_names_its_installation() -> None:
    code = "import sys; sys.modules['IPython'] = None; import course_utils; course_utils.ready"
    run = run_python("-c", code)
    said = f"The package IPython is not installed: {INSTALL_AGAIN}."
    assert run.stderr.strip().endswith(f"KeepfedError: {said}")
