"""Formats written by the workers of a Ray cluster, some of which are killed."""

import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import psutil
import pytest

from course_utils.paths import REPO
from data_scripts import files, make_events
from data_scripts.convert_events import add_formats, main
from data_scripts.on_ray import write_part

NAMES = ["npz-deflate", "tar", "sqlite"]


def test_aborted_and_repeated_part_exists_once(
    events_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, suppress(InterruptedError):
        patch.setattr(Path, "replace", Mock(side_effect=InterruptedError))
        write_part(events_folder, "npz-deflate", tmp_path, 0)
    places = [write_part(events_folder, "tar", tmp_path, 1) for _ in range(2)]
    assert places[0] == places[1]
    for _ in range(2):  # the second rename fails, because the folder exists
        write_part(events_folder, "npz-deflate", tmp_path, 0)
    files.sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000", "events-00001.tar"]
    assert len(list((tmp_path / "000").iterdir())) == 600


def test_missing_ray_is_reported_with_its_installation(
    events_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main([str(events_folder), "--to", "tar", "--engine", "ray"]) == 1
    assert 'pip install -e keepfed -e ".[cluster]"' in capsys.readouterr().err
    assert not (events_folder / "tar").exists()


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


def writers() -> dict[int, psutil.Process]:
    """Return the processes of the cluster that are writing a part, by the process of their node."""
    found = {}
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "ray::write_part" in " ".join(process.cmdline()):
                found[process.ppid()] = process
    return found


@pytest.mark.skipif(not importlib.util.find_spec("ray"), reason="Ray is not installed")
@pytest.mark.full
@pytest.mark.filterwarnings("ignore")  # warnings of Ray itself
@pytest.mark.parametrize("dies", ["worker", "node"])
def test_cluster_writes_the_bytes_of_one_process(dies: str, cluster: Any, tmp_path: Path) -> None:
    whole, folder = tmp_path / "whole", tmp_path / "events"
    assert make_events.main(["--size", "S", "--out", str(whole)]) == 0
    shutil.copytree(whole, folder)
    add_formats(whole, NAMES)
    cluster.add_node(num_cpus=1)
    nodes = {node.all_processes["raylet"][0].process.pid: node for node in cluster.worker_nodes}
    script = [sys.executable, "-m", "data_scripts.convert_events", folder, "--engine", "ray"]
    address = {"RAY_AUTH_MODE": "disabled", "RAY_ADDRESS": cluster.address}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    run = subprocess.Popen(
        [*script, "--to", *NAMES], cwd=REPO, env={**os.environ, **address}, **pipes
    )
    while not nodes.keys() & writers().keys():
        assert run.poll() is None
        time.sleep(0.01)
    for node, process in writers().items():
        if dies == "worker":
            process.kill()
        elif node in nodes:
            cluster.remove_node(nodes[node], allow_graceful=False)
            break
    said, _ = run.communicate(timeout=300)
    assert run.returncode == 0, said
    assert "sqlite is a single file" in said
    assert (folder / files.CHECKSUMS).read_bytes() == (whole / files.CHECKSUMS).read_bytes()
    assert not files.corrupted(folder)
    assert not list(folder.rglob(".*"))
