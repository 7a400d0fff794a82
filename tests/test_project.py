import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import course_utils
import keepfed
from course_utils.paths import REPO
from docs.publish import address

PROJECT, KEEPFED = (
    tomllib.loads((REPO / folder / "pyproject.toml").read_text("utf-8"))["project"]
    for folder in ("", "keepfed")
)
README = (REPO / "README.md").read_text("utf-8")
PYTHON = f"python{PROJECT['requires-python']}"


def tracked_files() -> list[Path]:
    listing = subprocess.run(["git", "ls-files"], cwd=REPO, capture_output=True, text=True)
    if listing.returncode:
        pytest.skip("this is not a git checkout")
    return [path for path in map(REPO.joinpath, listing.stdout.splitlines()) if path.is_file()]


def test_both_projects_have_the_same_version() -> None:
    assert course_utils.__version__ == keepfed.__version__


def test_conda_environment_provides_only_python_and_pip() -> None:
    entries = re.findall("^ *- (.*)", (REPO / "environment.yml").read_text("utf-8"), re.M)
    python, pip, torch, torchvision, *rest = entries[entries.index(PYTHON) :]
    assert (python, pip) == (PYTHON, "pip")
    colab = PROJECT["optional-dependencies"]["colab"]
    assert {torch.replace("pytorch", "torch"), torchvision} <= set(colab)
    assert rest == ["pip:", "-e ./keepfed", "-e .[course]"]


def test_lock_pins_one_version_of_every_dependency() -> None:
    lines = (REPO / "requirements-dev.lock").read_text("utf-8").splitlines()
    pins = [Requirement(line) for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"==[^*,]+", str(pin.specifier)) for pin in pins)
    by_name = {pin.name: pin for pin in pins}
    extras = PROJECT["optional-dependencies"]
    wanted = [line for name in ("colab", "later", "course", "dev") for line in extras[name]]
    wanted = [line for line in wanted if not line.startswith(("keepfed[", "fast-data-loaders["))]
    wanted += KEEPFED["dependencies"]
    wanted += [line for extra in KEEPFED["optional-dependencies"].values() for line in extra]
    for requirement in map(Requirement, wanted):
        pin = by_name[requirement.name]
        assert pin.marker is None
        assert requirement.specifier.contains(str(pin.specifier).removeprefix("=="))


def test_colab_keeps_its_versions_and_gets_one_package_more() -> None:
    lines = (REPO / "tests/colab/versions.txt").read_text("utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    extras = PROJECT["optional-dependencies"]
    wanted = [*KEEPFED["dependencies"], *KEEPFED["optional-dependencies"]["notebook"]]
    wanted += [*extras["colab"], *extras["later"]]
    needed = [r for r in map(Requirement, wanted) if r.name != "keepfed"]
    assert [str(r) for r in needed if not r.specifier.contains(pins.get(r.name, "999"))] == []
    added = {line.partition(">")[0] for line in extras["colab"]} - pins.keys()
    assert added == {"keepfed[notebook]", "webdataset"}


def test_no_file_names_a_registry_or_a_local_path() -> None:
    hosts = "|".join(["pypi" + r"\.org", "python" + "hosted", r"registry\.npm" + "js"])
    places = "|".join(["/ho" + r"me/\w", r"(?<!\w)/ro" + "ot/", "/wo" + "rk/"])
    pattern = re.compile(f"{hosts}|{places}")
    found = {}
    for path in tracked_files():
        try:
            hit = pattern.search(path.read_text("utf-8"))
        except UnicodeDecodeError:
            continue
        if hit:
            found[str(path.relative_to(REPO))] = hit.group()
    assert found == {}


OURS = re.compile(
    r"git clone \S+|git\+http[^\s\"'`\\]+|colab\.research\.google\.com/github[^\s)\"\\]*"
    r"|ghcr\.io/[^\s\"]+|pip install (?:-q )?\"?keepfed[^\n`]*"
    r"|[\w.-]*\.[a-z]{2,}/[\w./~-]*(?:fast-data-loaders|keepfed)\b|fast-data-loaders\.[a-z]+/\S*"
)
OTHERS = re.compile(r"[{$]|ghcr\.io/devcontainers/|example\.org/")  # templates, examples


def test_no_text_has_an_address_of_ours_that_the_setting_does_not_know() -> None:
    ours = address()
    known = [ours.repository, ours.book, ours.on_github, ours.keepfed() * ours.published]
    known = [link.removeprefix("https://").lower() for link in known if link]
    found = {
        (str(path.relative_to(REPO)), named)
        for path in set(tracked_files()) - {Path(__file__), REPO / "tests/docs/test_publish.py"}
        if path.suffix in (".cff", ".ipynb", ".md", ".py", ".toml", ".yml", "")
        for named in OURS.findall(path.read_text("utf-8"))
        if not OTHERS.search(named) and not any(link in named.lower() for link in known)
    }
    assert found == set()


def test_readme_is_short_and_its_links_exist() -> None:
    assert len(README.splitlines()) <= 130
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", README)
    assert links
    assert [link for link in links if "://" not in link and not (REPO / link).exists()] == []


def test_readme_lists_exactly_the_notebooks() -> None:
    listed = set(re.findall(r"notebooks/(\w+\.ipynb)", README))
    assert listed == {path.name for path in (REPO / "notebooks").glob("*.ipynb")}
