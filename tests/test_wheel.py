"""The two wheels work without their checkout."""

import importlib.metadata
import importlib.util
import os
import shutil
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import keepfed
from course_utils.paths import REPO
from keepfed.measure.hook import loader_hook
from tests.fixtures import run_python

MOST_BYTES = 5_000_000
ADDED = {"psutil", "threadpoolctl"}  # what pip installs with keepfed
OLDEST = {"torch": loader_hook.OLDEST, "numpy": "1.26"}
HEADER = (
    "import sys; sys.path[:] = [{wheel!r}, *[path for path in sys.path if path], *{libraries!r}]"
)

COURSE = """
import importlib, pkgutil
import course_utils as cu
import keepfed
from course_utils.paths import course_home, recording, shipped

print(cu.check("02.1", 10_000_000, 1007.2, 10.07).status)
print("<svg" in cu.simulate(cu.Pipeline()).timeline().to_html())
print(recording("py_spy_record.txt").is_file(), len(list(shipped("notebooks").glob("*.ipynb"))))
for package in (cu, keepfed):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith(".widget"):
            found = importlib.import_module(module.name)
            assert found.__file__.startswith({wheel!r}), found
"""

WITHOUT_TORCH = """
import keepfed, keepfed.command
print(keepfed.command.main(["why", "Bus error"]))
try:
    keepfed.diagnose
except keepfed.errors.KeepfedError as error:
    print(error)
"""

LIGHT = """
import importlib.util, pathlib, torch, keepfed
from torch.utils.data import DataLoader, TensorDataset

names = "anywidget", "psutil", "simpy", "threadpoolctl", "tqdm"
assert not any(map(importlib.util.find_spec, names))
loader = DataLoader(TensorDataset(torch.arange(640.0)), batch_size=4)
print(sum(len(batch) for batch, in keepfed.CudaPrefetcher(loader, "cpu")))
def step(batch):
    return batch[0].sum()
print(keepfed.audit(loader, epochs=1).right)
staged = keepfed.stage_to_shm(__import__("os").__file__, to=".")
print(staged.bytes > 0)
with keepfed.record() as trace:
    for batch in trace.batches(loader):
        step(batch)
print("text/html" in trace.timeline()._repr_mimebundle_()[0])
try:
    keepfed.diagnose
except keepfed.errors.KeepfedError as error:
    print(error)
sys.path.append({added!r})
keepfed.diagnose(loader, step, seconds=2).cause
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Build the wheels of the course and of keepfed from a copy of the required files."""
    if importlib.util.find_spec("setuptools") is None and not os.environ.get("CI"):
        pytest.skip("setuptools, which builds the wheels, is not installed")
    folder = tmp_path_factory.mktemp("built")
    source = folder / "source"
    leave = shutil.ignore_patterns("*.egg-info", "__pycache__", ".*", "tests")
    for name in ("course_utils", "data_scripts", "keepfed", "notebooks"):
        shutil.copytree(REPO / name, source / name, ignore=leave)
    names = ("pyproject.toml", "setup.py", "course_data.py", "README.md")
    for name in (*names, "LICENSE", "LICENSE-texts"):
        shutil.copy(REPO / name, source)
    alone = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    projects = [str(source), str(source / "keepfed")]
    run(folder, "-m", "pip", "wheel", "-q", *alone, "-w", str(folder), *projects)
    shutil.rmtree(source)
    return {wheel.name.partition("-")[0]: wheel for wheel in folder.glob("*.whl")}


@pytest.fixture(scope="module")
def installed(built: dict[str, Path]) -> Path:
    """Install both beside the oldest torch and NumPy, into a folder that is then read-only."""
    base = built["keepfed"].parent / "venv"
    venv.create(base, symlinks=os.name != "nt")
    folder = Path(sysconfig.get_path("purelib", "venv", {"base": str(base)}))
    versions = OLDEST | {name: importlib.metadata.version(name) for name in ADDED}
    for name, version in versions.items():
        about = folder / f"{name}-{version}.dist-info" / "METADATA"
        about.parent.mkdir()
        about.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    pip = ["-m", "pip", "--python", str(base), "install", "-q", "--no-index", "--no-compile"]
    run(folder, *pip, str(built["keepfed"]))
    found = {one.name: one.version for one in importlib.metadata.distributions(path=[str(folder)])}
    assert found == versions | {"keepfed": keepfed.__version__}
    for name, version in versions.items():  # the tests use the packages themselves
        shutil.rmtree(folder / f"{name}-{version}.dist-info")
    run(folder, *pip, "--no-deps", str(built["fast_data_loaders"]))
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    return folder


@pytest.mark.slow
def test_wheels_are_small_and_install_only_their_own_names(built: dict[str, Path]) -> None:
    names = {}
    for project, wheel in built.items():
        assert wheel.stat().st_size <= MOST_BYTES
        tops = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
        names[project] = {top for top in tops if not top.endswith(".dist-info")}
    course = {"course_utils", "data_scripts", "course_data.py"}
    assert names == {"keepfed": {"keepfed"}, "fast_data_loaders": course}


@pytest.mark.slow
def test_course_runs_from_its_wheel(installed: Path, tmp_path: Path) -> None:
    libraries = [path for path in sys.path if path.endswith("-packages")]
    said = python(installed, libraries, COURSE, tmp_path)
    assert said.split() == ["right", "True", "True", "16"]


@pytest.mark.slow
def test_light_package_works_with_only_torch_and_numpy(installed: Path, tmp_path: Path) -> None:
    libraries, added = tmp_path / "libraries", tmp_path / "added"
    beside = closure(Requirement("torch")) | closure(Requirement("numpy"))
    for folder, names in ((libraries, beside), (added, ADDED)):
        folder.mkdir()
        for top in set().union(*map(tops_of, names)):
            (folder / top.name).symlink_to(top)
    said = python(installed, [str(libraries)], LIGHT.format(added=str(added)), tmp_path)
    missing = "The package threadpoolctl is not installed: run pip install threadpoolctl."
    assert said.splitlines() == ["640", "True", "True", "True", missing]
    said = python(installed, [], WITHOUT_TORCH, tmp_path)
    assert said.splitlines()[-2:] == ["0", missing.replace("threadpoolctl", "torch")]
    script = tmp_path / "train.py"
    script.write_text(
        "import time, torch\nfrom torch.utils.data import DataLoader, TensorDataset\n"
        "for batch in DataLoader(TensorDataset(torch.arange(640.0)), batch_size=4):\n"
        "    time.sleep(0.005)\n"
    )
    watch = f"from keepfed.command import main; main(['watch', sys.executable, {str(script)!r}])"
    python(installed, [str(libraries)], watch, tmp_path, PYTHONPATH=f"{installed}:{libraries}")
    assert "160 batches" in (tmp_path / "keepfed-watch" / "report.html").read_text("utf-8")


def python(installed: Path, libraries: list[str], program: str, folder: Path, **env: str) -> str:
    head = HEADER.format(wheel=str(installed), libraries=libraries)
    text = f"{head}\n{program.replace('{wheel!r}', repr(str(installed)))}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("COURSE_")}
    flags = ["-B", "-S", *([] if env.get("PYTHONPATH") else ["-I"])]
    return run(folder, *flags, "-c", text, **{**kept, **env})


def run(folder: Path, *arguments: str, **environment: str) -> str:
    done = run_python(*arguments, cwd=folder, env=environment or None)
    assert done.returncode == 0, done.stderr
    return done.stdout


def closure(wanted: Requirement) -> set[str]:
    """Return the names of a package and of all its dependencies on this machine."""
    found, left = set[str](), [wanted]
    while left:
        one = left.pop()
        name = canonicalize_name(one.name)
        if name not in found:
            found.add(name)
            lines = importlib.metadata.requires(name) or []
            needed = map(Requirement, lines)
            left += [r for r in needed if not r.marker or r.marker.evaluate({"extra": ""})]
    return found


def tops_of(name: str) -> set[Path]:
    """Return the files and folders that a package installs in site-packages."""
    files = importlib.metadata.files(name) or []
    tops = {Path(file.parts[0]) for file in files if file.parts[0] not in ("..", "__pycache__")}
    root = Path(str(importlib.metadata.distribution(name).locate_file("")))
    return {root / top for top in tops}
