"""The page that documents `keepfed` and the loaders of the course, made from their public names."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

import keepfed
from course_utils import loading
from keepfed import loaders

HEAD = """# Reference

`keepfed` is the package for your own trainings. `course_utils` belongs to the notebooks: it adds an
emulated GPU, an emulated storage, and the data of the course.
"""


def reference() -> str:
    """Return the page, with a section for each package and for each of its loading modules."""
    names = ["keepfed", *_inside(loaders), "course_utils", *_inside(loading)]
    return "\n".join([HEAD, *(line for name in names for line in _section(name))]) + "\n"


def public_names(module: ModuleType) -> list[str]:
    """Return the names of the public functions and classes of a module or package."""
    if names := getattr(module, "__all__", ()):
        own = set(names) if module is keepfed else set(names) - set(keepfed.__all__)
        own = {name for name in own if not _home(module, name).startswith("keepfed.loaders.")}
        return sorted(own)
    found = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    return sorted(
        name
        for name, value in found.items()
        if inspect.isclass(value) or inspect.isfunction(value)
        if f"{value.__module__}.".startswith(f"{module.__name__}.")
    )


def _home(module: ModuleType, name: str) -> str:
    return str(getattr(module, name).__module__)


def _inside(package: ModuleType) -> list[str]:
    found = pkgutil.iter_modules(package.__path__)
    return sorted(f"{package.__name__}.{one.name}" for one in found)


def _section(name: str) -> Iterator[str]:
    module = import_module(name)
    about = (inspect.getdoc(module) or "").partition("\n\n")[0]
    yield f"\n## `{name}`\n\n{about}\n"
    yield f"```{{eval-rst}}\n.. py:currentmodule:: {name}\n"
    for one in public_names(module):
        if inspect.isclass(getattr(module, one)):
            yield f".. autoclass:: {name}.{one}\n   :members:\n"
        else:
            yield f".. autofunction:: {name}.{one}\n"
    yield "```"
