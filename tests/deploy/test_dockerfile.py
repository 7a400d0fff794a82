"""The image, its settings and its name: what can be known without building a container."""

import json
import re

from course_utils import __version__
from course_utils.paths import REPO
from docs.publish import address

DEPLOY = REPO / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text("utf-8")
COMPOSE = (DEPLOY / "compose.yml").read_text("utf-8")
CONFIG = (DEPLOY / "jupyterhub_config.py").read_text("utf-8")
BINDER = (REPO / ".binder" / "Dockerfile").read_text("utf-8")


def test_copied_files_and_stages_exist() -> None:
    copied = [line.split()[:-1] for line in re.findall(r"^COPY (.*)$", DOCKERFILE, re.M)]
    assert ["--from=build", "/opt/course"] in copied
    files = [name for names in copied if names[0] != "--from=build" for name in names]
    assert [name for name in files if not (REPO / name).exists()] == []


def test_the_image_has_a_pinned_base_and_a_user_without_rights() -> None:
    assert re.search(r"^ARG PYTHON=3\.\d+-slim-\w+$", DOCKERFILE, re.M)
    bases = ["python:${PYTHON} AS build", "python:${PYTHON}"]
    assert re.findall(r"^FROM (.*)$", DOCKERFILE, re.M) == bases
    final = DOCKERFILE.rpartition("\nFROM ")[2]
    assert "RUN useradd --uid 1000 " in final
    assert re.findall(r"^USER (.*)$", final, re.M) == ["1000"]
    assert "COURSE_HOME=/learner/" in final


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
    assert f"FROM {address().fields()['image']}:{__version__}\n" in BINDER


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
    shm, memory = int(row[1]) / 1000, float(row[2])
    assert f"MEMORY, SHM = {memory} * GB + 0.1 * GB, {shm} * GB" in CONFIG
    assert memory + 0.1 < int(limit[1])
