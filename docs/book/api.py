"""Make the page that documents what learners take home, from the names of the packages."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

from course_utils import loading

HEAD = """# What you take home

All of this is the code of the course, in the folder `course_utils`. It needs no notebook: import it
in your own project.
"""


def reference() -> str:
    """Return the page: `course_utils` itself, then each package of `course_utils.loading`."""
    names = ["course_utils", *(f"course_utils.loading.{name}" for name in _inside(loading))]
    return "\n".join([HEAD, *(line for name in names for line in _section(name))]) + "\n"


def public_names(module: ModuleType) -> list[str]:
    """Return the functions and classes that a module offers; a package offers those inside it."""
    if names := getattr(module, "__all__", ()):
        return sorted(names)
    found = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    return sorted(
        name
        for name, value in found.items()
        if inspect.isclass(value) or inspect.isfunction(value)
        if f"{value.__module__}.".startswith(f"{module.__name__}.")
    )


def _inside(package: ModuleType) -> list[str]:
    return sorted(found.name for found in pkgutil.iter_modules(package.__path__))


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
