"""The house as a whole: its public names, what an import costs, and which room leads to which."""

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import course_utils
from course_utils.paths import REPO
from docs.house import ROOTS, circle, drawing, folders, modules, plug_ins, unreached, wrong_ways

LIMIT = 12  # entries of a folder, so that one look takes it in
COURSE = ("notebook", "images", "colab", "course")  # the extras of the course
# which pins what it imports, and installs it into environments of their own
ON_DEMAND = "course_stories.peers.libraries"


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
        "watch",
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


@pytest.mark.parametrize("module", ["course_utils", "course_utils.command.cli"])
def test_an_import_takes_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"torch", "numpy", "matplotlib", "IPython", "anywidget", "jupyter_server", "pyarrow"}
    assert heavy.isdisjoint(run.stdout.split())


@pytest.mark.slow
def test_what_a_bare_machine_with_a_gpu_runs_needs_torch_and_numpy_alone() -> None:
    code = (
        "import sys, keepfed.measure.exchange.chrome, keepfed.measure.spans, "
        "keepfed.measure.trace, course_utils.hardware.gpu; print(*sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    ours = {"anywidget", "fsspec", "h5py", "IPython", "matplotlib", "psutil", "threadpoolctl"}
    assert ours.isdisjoint(run.stdout.split())


def test_no_files_import_in_a_circle() -> None:
    assert circle({name: set(module.imports) for name, module in modules().items()}) == []


def test_no_folders_import_in_a_circle() -> None:
    assert circle(folders(modules())) == []


def test_no_import_leads_upstairs() -> None:
    assert wrong_ways(modules()) == set()


def test_a_name_of_a_class_has_one_meaning() -> None:
    homes = Counter(
        node.name
        for module in modules().values()
        for node in ast.walk(ast.parse(module.path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert {name for name, count in homes.items() if count > 1} == set()


def test_what_is_loaded_by_name_from_upstairs_is_known() -> None:
    assert plug_ins(modules()) == {
        "course_utils.teaching.exercise loads course_exercises",
        "course_stories.lecture.show loads course_stories.lecture.programs",
        "course_utils.command.cli loads course_stories.leaderboard",
        "course_utils.command.cli loads course_stories.lecture",
    }


def test_a_folder_is_taken_in_at_one_look() -> None:
    entries = Counter(module.folder for module in modules().values())
    assert {folder: count for folder, count in entries.items() if count > LIMIT} == {}


def test_the_picture_of_the_house_has_a_box_for_every_folder() -> None:
    drawn = re.findall('data-folder="(.*?)"', (REPO / "docs/house.svg").read_text("utf-8"))
    shown = re.findall('data-folder="(.*?)"', drawing(modules()))
    assert sorted(drawn) == sorted(shown), "draw it again: python docs/house.py docs/house.svg"
    assert {module.folder for module in modules().values() if module.path.stem != "__init__"} <= {
        *shown
    }


def test_nothing_is_there_that_nobody_uses() -> None:
    assert unreached(modules()) == []


def test_every_package_that_is_imported_is_declared() -> None:
    project = tomllib.loads((REPO / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    light = declared(project["dependencies"])
    allowed = {
        "keepfed.measure.picture.widget": light | declared(extras["notebook"]),
        "keepfed.loaders.images": light | declared(extras["images"]),
        "keepfed": light,
        "course": light.union(*(declared(extras[e]) for e in COURSE)),
        "course_data": light.union(*(declared(extras[e]) for e in (*COURSE, "cluster"))),
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
