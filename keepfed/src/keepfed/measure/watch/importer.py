"""Import keepfed, and nothing else of its environment, into a watched Python process.

The `sitecustomize` of `attach` runs this file by its source, so it needs only the standard library.
"""

from __future__ import annotations

import _imp
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType


class Finder(MetaPathFinder):
    """Finds keepfed as the program would, or else in `root`, and hides the names of its files."""

    def __init__(self, root: str):
        self._root = root

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where to find a module of keepfed, and None for all others."""
        if name.partition(".")[0] != "keepfed":
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        found = (finder.find_spec(name, path, target) for finder in others)
        spec = next(filter(None, found), None) or PathFinder.find_spec(name, path or [self._root])
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader.__class__ = HiddenLoader
        return spec


class HiddenLoader(SourceFileLoader):
    """Loads a module whose code has the name of no file, so that coverage does not count it."""

    def get_code(self, fullname: str) -> CodeType | None:
        """Return the code of a module, with "<" before the name of its file."""
        code = super().get_code(fullname)
        if code is not None:
            _imp._fix_co_filename(code, f"<{self.path}>")  # type: ignore[attr-defined]
        return code
