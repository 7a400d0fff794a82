"""Checks of the installation: Python, packages, data, a worker process and the widget."""

import importlib
import importlib.metadata
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement

from course_utils import paths
from course_utils.errors import INSTALL_AGAIN
from keepfed.errors import IMPORT_NAMES

_PROJECTS = ("fast-data-loaders", "keepfed")
_READ_ALL = 100_000_000  # bytes of a data set whose checksums are verified
_EXTRAS = ("", "colab", "course", "images", "later", "notebook")  # what the course needs


@dataclass(frozen=True)
class Checkup:
    """State of one part of the installation, and how to fix it."""

    part: str
    seen: str
    next_step: str = ""

    @property
    def is_wrong(self) -> bool:
        """Whether this part needs fixing."""
        return bool(self.next_step)

    def __str__(self) -> str:
        mark = "wrong" if self.is_wrong else "ok"
        step = f" -> {self.next_step}" if self.next_step else ""
        return f"{mark:<5}  {self.part:<9}  {self.seen}{step}"


class _WrongError(Exception):
    """A fault of the installation: what was found, and how to fix it if not as usual."""


def findings() -> Iterator[Checkup]:
    """Yield the state of each part. An unexpected error also counts as a fault."""
    parts: dict[str, tuple[Callable[[], str], str]] = {
        "python": (_python, "use Python 3.11 to 3.14"),
        "packages": (_packages, INSTALL_AGAIN),
        "imports": (_imports, INSTALL_AGAIN),
        "folders": (_folders, "move the project to your home folder"),
        "data": (_data, "run `course data` to create the missing data"),
        "worker": (_worker, "look the error up with `keepfed why`"),
        "widget": (_widget, INSTALL_AGAIN),
    }
    for part, (look, next_step) in parts.items():
        try:
            yield Checkup(part, look())
        except _WrongError as wrong:
            yield Checkup(part, wrong.args[0], *(wrong.args[1:] or [next_step]))
        except Exception as error:  # the learner needs to see any error
            first = str(error).splitlines()[0] if str(error) else ""
            yield Checkup(part, f"{type(error).__name__}: {first}", next_step)


def _python() -> str:
    version = ".".join(map(str, sys.version_info[:3]))
    wanted = importlib.metadata.metadata(_PROJECTS[0])["Requires-Python"]
    seen = f"{version} at {sys.executable}"
    if version not in Requirement(f"python{wanted}").specifier:
        raise _WrongError(seen)
    return seen


def _required() -> list[Requirement]:
    lines = [line for project in _PROJECTS for line in importlib.metadata.requires(project) or []]
    required = [package for package in map(Requirement, lines) if _belongs(package)]
    return [package for package in required if package.name not in _PROJECTS]


def _belongs(package: Requirement) -> bool:
    """Return whether the course needs this package, directly or as an optional dependency."""
    marker = package.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in _EXTRAS)


def _installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _is_met(wanted: Requirement) -> bool:
    return wanted.specifier.contains(_installed(wanted.name) or "0", prereleases=True)


def _packages() -> str:
    if missing := [str(package) for package in _required() if not _is_met(package)]:
        raise _WrongError(f"missing or too old: {', '.join(missing)}")
    return f"all {len(_required())} are installed"


def _imports() -> str:
    for package in _required():
        if package.name != "py-spy":  # a program without a module
            name = IMPORT_NAMES.get(package.name, package.name.replace("-", "_"))
            importlib.import_module(name)
    return "every package can be imported"


def _folders() -> str:
    own = "set COURSE_DATA to a writable folder, or unset it"
    advice = {paths.data_root(): [own] if os.environ.get("COURSE_DATA") else []}
    advice |= {paths.course_home() / name: [] for name in ("work", ".jupyter")}
    for folder, steps in advice.items():
        existing = next(above for above in (folder, *folder.parents) if above.exists())
        try:
            with tempfile.TemporaryFile(dir=existing):  # so missing folders can be created in it
                pass
        except OSError as error:
            raise _WrongError(f"{existing} is not writable ({error.strerror})", *steps) from None
    return f"{', '.join(map(str, advice))} are writable"


def _data() -> str:
    from course_utils.teaching.notebook import DATA_SETS

    size = paths.data_size()
    folders = [paths.data_root() / f"{name}-{size}" for name in DATA_SETS]
    if incomplete := [folder.name for folder in folders if not _is_complete(folder)]:
        raise _WrongError(f"missing, changed or incomplete: {', '.join(incomplete)}")
    return f"all of size {size} are complete"


def _is_complete(folder: Path) -> bool:
    """Return whether all files have their sizes, and in a small data set also their checksums."""
    from data_scripts.files import corrupted, read_manifest, sizes_match

    manifest = read_manifest(folder)
    if manifest is None or not sizes_match(folder, manifest):
        return False
    return manifest["bytes"] > _READ_ALL or not corrupted(folder)


def _worker() -> str:
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    numbers = TensorDataset(torch.arange(8, device="cpu"))
    loader = DataLoader(numbers, batch_size=4, num_workers=1, timeout=60)
    return f"a worker process delivered {len(list(loader))} batches"


def _widget() -> str:
    from keepfed.measure.simulate import Pipeline, simulate

    simulate(Pipeline()).timeline()
    extensions = Path(sys.prefix, "share", "jupyter", "labextensions")
    for extension in ("anywidget", "@jupyter-widgets/jupyterlab-manager"):
        if not (extensions / extension / "package.json").is_file():
            raise _WrongError(f"JupyterLab lacks {extension}")
    return "JupyterLab can show the timeline"
