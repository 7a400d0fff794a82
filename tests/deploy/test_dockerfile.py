"""The image, its settings and its name: what can be known without building a container."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, field

from course_utils import __version__
from course_utils.paths import REPO
from docs.publish import address

DEPLOY = REPO / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text("utf-8")
COMPOSE = (DEPLOY / "compose.yml").read_text("utf-8")
CONFIG = (DEPLOY / "jupyterhub_config.py").read_text("utf-8")
BINDER = (REPO / ".binder" / "Dockerfile").read_text("utf-8")


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
