"""Formats written by the workers of a Ray cluster, some of which are killed."""

import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from course_utils.paths import REPO
from data_scripts import files, make_events, on_ray
from data_scripts.convert_events import add_formats, main

NAMES = ["npz-deflate", "tar", "sqlite"]
Said = pytest.CaptureFixture[str]
with_ray = pytest.mark.skipif(not importlib.util.find_spec("ray"), reason="Ray is not installed")


def without_formats(folder: Path, copy: Path) -> Path:
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("npz-deflate", "tar", "events.db"))
    return copy


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return 2,000 events with the formats as one process writes them. Do not write to it."""
    folder = tmp_path_factory.mktemp("whole") / "events"
    assert make_events.main(["--size", "S", "--out", str(folder)]) == 0
    add_formats(folder, NAMES)
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """Return the same events without the formats."""
    return without_formats(whole, tmp_path / "events")


def same(folder: Path, whole: Path) -> bool:
    """Compare all checksums, and check that no other files exist."""
    sums = [(path / files.CHECKSUMS).read_bytes() for path in (folder, whole)]
    return sums[0] == sums[1] and not files.corrupted(folder) and not list(folder.rglob(".*"))


class StandIn:
    """Replacement for Ray: each task runs in this process, after a first attempt was aborted."""

    exceptions = SimpleNamespace(RayTaskError=ZeroDivisionError, RayError=ZeroDivisionError)

    def remote(self, task: Callable[..., Any]) -> Any:
        def run(*arguments: object) -> Any:
            with pytest.MonkeyPatch.context() as patch, suppress(InterruptedError):
                patch.setattr(Path, "replace", self.killed)
                task(*arguments)
            task(*arguments)
            return task(*arguments)  # repeated by a disconnected node

        return SimpleNamespace(remote=run)

    @staticmethod
    def killed(*_: Path) -> None:
        raise InterruptedError

    def get(self, result: Any) -> Any:
        return result

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(get_node_id=lambda: "a")


@pytest.mark.slow
def test_aborted_and_repeated_parts_exist_once(
    events_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [without_formats(events_folder, tmp_path / name) for name in ("here", "ray")]
    add_formats(folders[0], NAMES)
    monkeypatch.setitem(sys.modules, "ray", StandIn())
    add_formats(folders[1], NAMES, on_ray._write_on_ray)
    assert same(folders[1], folders[0])


def test_missing_ray_is_reported_with_its_installation(
    events_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main([str(events_folder), "--to", "tar", "--engine", "ray"]) == 1
    assert 'pip install -e ".[cluster]"' in capsys.readouterr().err
    assert not (events_folder / "tar").exists()


def test_missing_cluster_is_reported(
    events_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    monkeypatch.setitem(sys.modules, "ray", StandIn())
    assert main([str(events_folder), "--to", "tar", "--engine", "ray", "--ray", "localhost:1"]) == 1
    assert "No Ray cluster answers at localhost:1 (" in capsys.readouterr().err


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Start a cluster of two nodes on this machine, with one core each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")  # otherwise Ray writes a token to the home folder
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        from ray.cluster_utils import Cluster

        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        yield cluster
        cluster.shutdown()


def convert(folder: Path, *options: str) -> subprocess.Popen[str]:
    script = [sys.executable, "-m", "data_scripts.convert_events", folder, "--engine", "ray"]
    return subprocess.Popen(
        [*script, *options, "--to", *NAMES],
        cwd=REPO,
        env={**os.environ, "RAY_AUTH_MODE": "disabled"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def await_half_a_part(folder: Path) -> None:
    """Return when a worker has written only some events of a part."""
    while not any(folder.glob(".npz-deflate.unfinished/.*/*00.npz")):
        time.sleep(0.01)


def writers() -> Iterator[psutil.Process]:
    """Yield the processes of the cluster that are writing a part."""
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "ray::_part_task" in " ".join(process.cmdline()):
                yield process


@with_ray
@pytest.mark.full
@pytest.mark.filterwarnings("ignore")  # warnings of Ray itself
def test_two_nodes_write_the_same_bytes_as_one_process(
    folder: Path, whole: Path, cluster: Any
) -> None:
    said, _ = convert(folder, "--ray", cluster.address).communicate(timeout=300)
    assert "tar: 8 parts; workers: 2, nodes: 2." in said
    assert "sqlite is a single file" in said
    assert same(folder, whole)


@with_ray
@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
def test_killed_workers_lose_and_repeat_nothing(folder: Path, whole: Path, cluster: Any) -> None:
    run = convert(folder, "--ray", cluster.address)
    await_half_a_part(folder)
    victims = list(writers())
    for process in victims:
        process.kill()
    said, _ = run.communicate(timeout=300)

    assert victims
    assert run.returncode == 0, said
    assert same(folder, whole)


@with_ray
@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
def test_dead_node_loses_and_repeats_nothing(folder: Path, whole: Path, cluster: Any) -> None:
    cluster.add_node(num_cpus=1)
    nodes = {node.all_processes["raylet"][0].process.pid: node for node in cluster.worker_nodes}
    run = convert(folder, "--ray", cluster.address)
    while not (at_work := nodes.keys() & {process.ppid() for process in writers()}):
        time.sleep(0.01)
    cluster.remove_node(nodes[at_work.pop()], allow_graceful=False)
    said, _ = run.communicate(timeout=300)

    assert run.returncode == 0, said
    assert same(folder, whole)


@with_ray
@pytest.mark.full
def test_local_cluster_ends_with_the_run(folder: Path, whole: Path) -> None:
    run = convert(folder, "--workers", "2")
    said, _ = run.communicate(timeout=300)
    assert run.returncode == 0, said
    assert same(folder, whole)
