"""Watch every `DataLoader` of this process, from the moment in which torch is imported.

`course watch` puts a `sitecustomize` in front of the path of all Python processes below it, which
comes here. Nothing of torch is imported, and nothing happens in a process that imports none.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from course_utils.measure.watch.record import FOLDER, PROCESS, records_folder

_PATCHED = "torch.utils.data.dataloader", "torchdata.stateful_dataloader.stateful_dataloader"


def prepare(folder: Path) -> dict[str, str]:
    """Make `folder` ready for records; return the environment of the processes to be watched."""
    site, root = folder / "site", Path(__file__).resolve().parents[3]
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "import importlib.util, sys\n"
        "if importlib.util.find_spec('course_utils') is None:\n"
        f"    sys.path.append({str(root)!r})\n"
        "try:\n    from course_utils.measure.watch.attach import attach\n    attach()\n"
        "except Exception as error:\n"
        "    print(f'course watch: this Python is not watched: {error}', file=sys.stderr)\n",
        "utf-8",
    )
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path, FOLDER: str(folder)}


def attach() -> None:
    """Begin to watch, and let another `sitecustomize` do what it does."""
    sys.meta_path.insert(0, _Finder())
    ours = sys.modules.pop("sitecustomize")
    sys.path.remove(str(Path(str(ours.__file__)).parent))
    try:
        importlib.import_module("sitecustomize")
    except ModuleNotFoundError as error:
        sys.modules["sitecustomize"] = ours
        if error.name != "sitecustomize":
            raise


class _Finder(MetaPathFinder):
    """Finds nothing by itself; has the modules patched once they are loaded."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in _PATCHED:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        found = (finder.find_spec(name, path, target) for finder in others)
        spec = next(filter(None, found), None)
        if spec is not None and spec.loader is not None:
            loader, load = spec.loader, spec.loader.exec_module

            def load_and_patch(module: ModuleType) -> None:
                del loader.exec_module
                load(module)
                _patch(module)

            loader.exec_module = load_and_patch  # type: ignore[method-assign]
        return spec


def _patch(module: ModuleType) -> None:
    """Have its loaders and iterators watched; what that needs is imported with the first batch."""
    if loader := getattr(module, "StatefulDataLoader", None):
        loader._get_iterator = _watched(loader._get_iterator)
        return
    _say_that_torch_is_here()
    module.DataLoader._get_iterator = _watched(module.DataLoader._get_iterator)
    iterators = module._BaseDataLoaderIter
    iterators._watched_turns = None
    iterators.__next__ = _timed(iterators.__next__)


def _watched(make: Callable[[Any], Iterator[Any]]) -> Callable[[Any], Iterator[Any]]:
    def get_iterator(loader: Any) -> Iterator[Any]:
        from course_utils.measure.watch.turns import begin

        return begin(loader, make)

    return get_iterator


def _timed(next_batch: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def next_of_watched(iterator: Any) -> Any:
        turns = iterator._watched_turns
        return next_batch(iterator) if turns is None else turns.take(iterator, next_batch)

    return next_of_watched


def _say_that_torch_is_here() -> None:
    """Leave the name of this process, so that it is known what was watched in vain."""
    Path(records_folder(), f"{os.getpid()}{PROCESS}").write_text("\n".join(sys.argv), "utf-8")
