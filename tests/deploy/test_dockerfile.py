"""The image, its settings and its name: what can be known without building a container."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from course_utils import __version__
from course_utils.paths import REPO
from docs.publish import address
from tests.deploy.hub import copy_sources

DEPLOY = REPO / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text("utf-8")
COMPOSE = (DEPLOY / "compose.yml").read_text("utf-8")
CONFIG = (DEPLOY / "jupyterhub_config.py").read_text("utf-8")
BINDER = (REPO / ".binder" / "Dockerfile").read_text("utf-8")
PLACES = ("/opt/", "/src", "/learner")  # folders of the image that its steps write to


@dataclass
class Stage:
    """A stage of a Dockerfile: its name, its base and its instructions."""

    name: str
    base: str
    steps: list[tuple[str, str]] = field(default_factory=list)

    def of(self, *kinds: str) -> list[str]:
        return [text for kind, text in self.steps if kind in kinds]

    def variables(self) -> dict[str, str]:
        """Return the arguments and the environment of its steps, which may use each other."""
        pairs = [pair for text in self.of("ARG", "ENV") for pair in shlex.split(text)]
        return dict(pair.split("=", 1) for pair in pairs)


def stages(dockerfile: str) -> list[Stage]:
    text = re.sub(r"^\s*#.*\n", "", dockerfile, flags=re.M).replace("\\\n", " ")
    found: list[Stage] = []
    for kind, rest in (line.split(None, 1) for line in text.splitlines() if line.strip()):
        if kind == "FROM":
            base, _, name = rest.partition(" AS ")
            found.append(Stage(name.strip(), base))
        elif found:
            found[-1].steps.append((kind, rest.strip()))
    return found


BUILD, FINAL = stages(DOCKERFILE)


def test_every_copied_file_and_stage_exists() -> None:
    for stage in (BUILD, FINAL):
        for source in stage.of("COPY"):
            *files, _ = source.split()
            if files[0].startswith("--from="):
                assert files[0] == f"--from={BUILD.name}"
                assert files[1] in ("/opt/course", "/opt/data")
            else:
                assert [file for file in files if not (REPO / file).exists()] == []


def test_the_image_has_a_pinned_base_and_a_user_without_rights() -> None:
    assert BUILD.base == FINAL.base == "python:${PYTHON}"
    assert re.search(r"^ARG PYTHON=3\.\d+-slim-\w+$", DOCKERFILE, re.M)
    assert FINAL.of("USER") == ["1000"]
    assert "--uid 1000" in FINAL.of("RUN")[0]
    assert FINAL.variables()["COURSE_HOME"].startswith("/learner/")


def test_nothing_is_installed_without_a_version() -> None:
    pins = [line for line in (DEPLOY / "hub.txt").read_text().splitlines() if line[0] != "#"]
    assert all(re.fullmatch(r"[\w-]+==[\d.]+", pin) for pin in pins)
    assert f"quay.io/jupyterhub/jupyterhub:{pins[0].partition('==')[2]}\n" in COMPOSE
    for install in re.findall(r"pip install (.*)", DOCKERFILE):
        assert "--requirement" in install or "--no-deps ." in install


def test_compose_builds_its_image_and_only_binder_pulls_ours() -> None:
    assert f"&image fast-data-loaders:{__version__} " in COMPOSE
    assert "image: *image\n    pull_policy: build\n" in COMPOSE
    assert 'DockerSpawner.pull_policy = "never"' in CONFIG
    assert stages(BINDER)[0].base == f"{address().fields()['image']}:{__version__}"


def test_every_container_has_a_larger_shm() -> None:
    container = json.loads((REPO / ".devcontainer" / "devcontainer.json").read_text("utf-8"))
    assert "--shm-size=2g" in container["runArgs"]
    assert (REPO / ".devcontainer" / container["build"]["dockerfile"]).resolve().exists()
    assert "shm_size: 2g" in COMPOSE
    assert '"shm_size": "2g"' in CONFIG
    assert "--shm-size=2g" in DOCKERFILE


def test_the_limits_are_those_of_the_memory_table() -> None:
    guide = (REPO / "slides" / "INSTRUCTOR.md").read_text("utf-8")
    row = re.search(r"^\| 1 \| .* \| (\d+) MB \| ([\d.]+) GB \|$", guide, re.M)
    limit = re.search(r'mem_limit, c\.Spawner\.cpu_limit = "(\d+)G", 2\.0', CONFIG)
    assert row
    assert limit
    shm, memory = int(row[1]) / 1000, float(row[2])
    assert f"MEMORY, SHM = {memory} * GB + 0.1 * GB, {shm} * GB" in CONFIG
    assert memory + 0.1 < int(limit[1])


@pytest.mark.full
def test_each_step_of_the_image_runs(tmp_path: Path) -> None:
    """Run them below `tmp_path`, with a fresh environment as the Python. Takes ten minutes."""
    for place in PLACES:
        Path(f"{tmp_path}{place}").mkdir(parents=True)
    context = tmp_path / "context"
    copy_sources(context)
    for left_out in (DEPLOY / "Dockerfile.dockerignore").read_text("utf-8").splitlines()[1:]:
        shutil.rmtree(context / left_out, ignore_errors=True)
    for kind, text in BUILD.steps:
        if kind == "COPY":
            copy(context, text.split()[:-1], tmp_path / "src")
        elif kind == "RUN":
            run(text, tmp_path, BUILD.variables(), cwd=tmp_path / "src")
    shutil.rmtree(tmp_path / "src")
    variables, home = FINAL.variables(), tmp_path / "learner"
    for step in FINAL.of("RUN"):
        assert step.startswith("useradd ")  # this machine gets no new user
    for command in ("course data", "course hand-out work", "jupyterhub-singleuser --version"):
        run(command, tmp_path, variables, cwd=home)
    assert len(list(home.glob("work/*.ipynb"))) == len(list((REPO / "notebooks").glob("*.ipynb")))
    assert not (home / "course" / "data").exists(), "data was made again"
    assert "jupyter_server_config.json" in os.listdir(tmp_path / "opt" / "course" / "jupyter")
    command, verb, *_ = json.loads(FINAL.of("CMD")[0])
    run(f"{command} {verb} --help", tmp_path, variables, cwd=home)


def copy(context: Path, sources: list[str], target: Path) -> None:
    for source in sources:
        if (context / source).is_dir():
            shutil.copytree(context / source, target, dirs_exist_ok=True)
        else:
            shutil.copy(context / source, target)


def run(command: str, root: Path, variables: dict[str, str], *, cwd: Path) -> None:
    """Run a step with its folders below `root`, and without the variables of this session."""

    def moved(text: str) -> str:
        return re.sub(rf"(?<![\w.])({'|'.join(PLACES)})", rf"{root}\1", text)

    session = os.environ.items()
    kept = {name: text for name, text in session if name.startswith(("LANG", "PIP_", "TMP"))}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ours = {name: moved(text).replace("$PATH", path) for name, text in variables.items()}
    done = subprocess.run(
        ["sh", "-ec", moved(command)],
        cwd=cwd,
        env=kept | ours | {"HOME": str(root / "learner")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
