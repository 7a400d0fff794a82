"""Watch every `DataLoader` of this process, as soon as the program imports torch.

`keepfed watch` puts a folder with a `sitecustomize` first on the Python path of all its child
processes. That file calls `attach`. This module does not import torch itself, so processes without
torch are not affected.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from keepfed.measure.watch.timing.failsafe import OBSERVER, give_up
from keepfed.measure.watch.timing.ring_file import FOLDER, PROCESS, records_folder

_WATCHING = "keepfed.measure.watch.timing.watching"
_PATCHED = "torch.utils.data.dataloader", "torchdata.stateful_dataloader.stateful_dataloader"

# The program may have its own `sitecustomize`, which must run even if ours fails.
_SITE = """\
import os, sys
try:
    with open({importer!r}, encoding='utf-8') as file:
        _own = dict(__name__='keepfed')
        exec(compile(file.read(), '<keepfed>', 'exec'), _own)
    sys.meta_path.insert(0, _own['Finder']({root!r}))
    from keepfed.measure.watch.attach import attach
    attach()
except Exception as error:
    print(f'keepfed: This Python process is not observed: {{error}}', file=sys.stderr)
_ours = sys.modules.pop('sitecustomize')
sys.path.remove(os.path.dirname(__file__))
try:
    import sitecustomize
except ModuleNotFoundError as error:
    sys.modules['sitecustomize'] = _ours
    if error.name != 'sitecustomize':
        raise
"""


def prepare(folder: Path) -> dict[str, str]:
    """Prepare `folder` for records and return the environment for the watched processes."""
    site, here = folder / "site", Path(__file__).resolve().parent
    site.mkdir()
    code = _SITE.format(importer=str(here / "importer.py"), root=str(here.parents[2]))
    (site / "sitecustomize.py").write_text(code, "utf-8")
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path, FOLDER: str(folder)}


def attach() -> None:
    """Patch torch as soon as the program imports it."""
    sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Import hook that lets other finders find a module, and patches it after loading."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in _PATCHED:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        found = (finder.find_spec(name, path, target) for finder in others)
        spec = next(filter(None, found), None)
        if spec is not None and spec.loader is not None:
            try:
                _patch_after_loading(spec.loader)
            except Exception as error:
                give_up(error)
        return spec


def _patch_after_loading(loader: Any) -> None:
    load = loader.exec_module

    def load_and_patch(module: ModuleType) -> None:
        del loader.exec_module
        load(module)
        try:
            _patch(module)
        except Exception as error:
            give_up(error)

    loader.exec_module = load_and_patch


def _patch(module: ModuleType) -> None:
    """Time the loaders and iterators of `module`.

    The first batch imports the modules that this needs.
    """
    if loader := getattr(module, "StatefulDataLoader", None):
        loader._get_iterator = _watched(loader._get_iterator)
        return
    iterators, loader = module._BaseDataLoaderIter, module.DataLoader
    get_iterator, next_batch = _watched(loader._get_iterator), _timed(iterators.__next__)
    _log_torch_import()
    iterators._step_timer = None
    iterators.__next__, loader._get_iterator = next_batch, get_iterator


def _watched(make: Callable[[Any], Iterator[Any]]) -> Callable[[Any], Iterator[Any]]:
    def get_iterator(loader: Any) -> Iterator[Any]:
        try:
            watching = import_module(os.environ.get(OBSERVER, _WATCHING))
        except Exception as error:
            give_up(error)
            return make(loader)
        return watching.watch_iterator(loader, make)  # type: ignore[no-any-return]

    return get_iterator


def _timed(next_batch: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def next_of_watched(iterator: Any) -> Any:
        timer = iterator._step_timer
        return next_batch(iterator) if timer is None else timer.time_next(iterator, next_batch)

    return next_of_watched


def _log_torch_import() -> None:
    """Write a file for this process, so the report can tell that torch was imported."""
    Path(records_folder(), f"{os.getpid()}{PROCESS}").write_text("\n".join(sys.argv), "utf-8")
