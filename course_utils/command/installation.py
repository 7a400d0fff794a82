"""Verify that what is installed can run the course, from versions to a living worker."""

import importlib
import importlib.metadata
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement

from course_utils import paths

_PROJECT = "fast-data-loaders"
_IMPORT_NAMES = {"ipython": "IPython", "pillow": "PIL", "scikit-image": "skimage"}
_PROGRAMS = {"py-spy"}  # nothing to import


@dataclass(frozen=True)
class Finding:
    """Say how one part of the installation is, and what to do where it is wrong."""

    part: str
    seen: str
    is_wrong: bool = False
    next_step: str = ""

    def __str__(self) -> str:
        mark = "wrong" if self.is_wrong else "ok"
        step = f" -> {self.next_step}" if self.next_step else ""
        return f"{mark:<5}  {self.part:<9}  {self.seen}{step}"


def findings() -> Iterator[Finding]:
    """Look at one part after the other; an unforeseen error is a finding too."""
    parts: dict[str, Callable[[], Finding]] = {
        "python": _python,
        "packages": _packages,
        "versions": _versions,
        "imports": _imports,
        "folders": _folders,
        "worker": _worker,
        "widget": _widget,
    }
    for part, look in parts.items():
        try:
            yield look()
        except Exception as error:  # whatever breaks here is what the learner needs to read
            seen = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            yield Finding(part, seen, is_wrong=True, next_step=_STEPS[part])


_INSTALL = "install again: `make lab`, or `pip install -e .` in your environment"
_STEPS = {
    "python": "use Python 3.11 to 3.14",
    "packages": _INSTALL,
    "versions": _INSTALL,
    "imports": _INSTALL,
    "folders": "put the project in a folder of your own",
    "worker": "see 'start methods' and 'shm' in README.md, Troubleshooting",
    "widget": _INSTALL,
}


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    wanted = importlib.metadata.metadata(_PROJECT)["Requires-Python"]
    wrong = version not in Requirement(f"python{wanted}").specifier
    return Finding("python", f"{version} at {sys.executable}", wrong, _STEPS["python"] * wrong)


def _required() -> list[Requirement]:
    required = map(Requirement, importlib.metadata.requires(_PROJECT) or [])
    return [package for package in required if package.marker is None]


def _installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _packages() -> Finding:
    missing = [
        str(package)
        for package in _required()
        if not package.specifier.contains(_installed(package.name) or "0", prereleases=True)
    ]
    if missing:
        return Finding("packages", f"missing or too old: {', '.join(missing)}", True, _INSTALL)
    return Finding("packages", f"all {len(_required())} are installed")


def _versions() -> Finding:
    lines = (paths.REPO / "requirements.lock").read_text("utf-8").splitlines()
    tested = [Requirement(line) for line in lines if line and not line.startswith("#")]
    needed = {package.name for package in _required()}
    other = [
        f"{package.name} {_installed(package.name)} (tested: {str(package.specifier)[2:]})"
        for package in tested
        if package.name in needed
        and not package.specifier.contains(_installed(package.name) or "0", prereleases=True)
    ]
    if other:
        return Finding("versions", f"other than tested, which mostly works: {', '.join(other)}")
    return Finding("versions", "as tested")


def _imports() -> Finding:
    for package in _required():
        if package.name not in _PROGRAMS:
            name = _IMPORT_NAMES.get(package.name, package.name.replace("-", "_"))
            importlib.import_module(name)
    return Finding("imports", "every package loads")


def _folders() -> Finding:
    folders = [paths.data_root(), paths.REPO / "work", paths.REPO / ".jupyter"]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    return Finding("folders", f"{', '.join(map(_short, folders))} can be written")


def _short(folder: Path) -> str:
    inside = folder.is_relative_to(paths.REPO)
    return str(folder.relative_to(paths.REPO) if inside else folder)


def _worker() -> Finding:
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    numbers = TensorDataset(torch.arange(8))
    loader = DataLoader(numbers, batch_size=4, num_workers=1, timeout=60)
    return Finding("worker", f"a worker process delivered {len(list(loader))} batches")


def _widget() -> Finding:
    from course_utils.measure.simulate import Pipeline, simulate

    simulate(Pipeline()).timeline()
    extensions = Path(sys.prefix, "share", "jupyter", "labextensions")
    for extension in ("anywidget", "@jupyter-widgets/jupyterlab-manager"):
        if not (extensions / extension / "package.json").is_file():
            return Finding("widget", f"JupyterLab lacks {extension}", True, _INSTALL)
    return Finding("widget", "the timeline loads, and JupyterLab can show it")
