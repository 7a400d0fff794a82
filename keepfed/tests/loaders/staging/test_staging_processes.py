"""Processes that stage: killed, meeting each other, or out of room and rights."""

import getpass
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from keepfed.loaders.staging import stage_to_shm, staged_copies, staged_copy
from keepfed.loaders.staging.stage import find_staging_dir
from tests.fixtures import PROJECT
from tests.loaders.staging.staging_sources import contents, left, stage, stage_and_die, start

if not hasattr(os, "fork"):
    pytest.skip("uses signals and forks of Unix", allow_module_level=True)
pytestmark = pytest.mark.slow


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    folder = tmp_path / "shards"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.tar").write_bytes(bytes([number]) * 1000)
    return folder


@pytest.fixture
def results() -> Any:
    return multiprocessing.get_context("fork").SimpleQueue()


def test_killed_at_every_step_there_is_nothing_or_the_whole(shards: Path, shm: Path) -> None:
    """The next run clears up, of the same source or of another one, and makes the copy."""
    step, code = 0, -9
    while code == -9:
        step += 1
        process = start(stage_and_die, shards, shm, step)
        process.join()
        code = process.exitcode
        for copy in staged_copies(to=shm):
            assert contents(copy.path) == contents(shards)
        if step % 2:
            stage_to_shm(shards / "0.tar", to=shm).unstage()
            assert not list(find_staging_dir(shm).glob(".unfinished"))
        staged = stage_to_shm(shards, to=shm)
        assert contents(staged.path) == contents(shards)
        staged.unstage()
        assert left(shm) == []
    assert code == 0
    assert step > 10


def test_whoever_waits_says_so_and_can_be_interrupted(
    source: Path, shm: Path, results: Any, capfd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged_copy, "QUIET_S", 0)
    told, tells = os.pipe()  # what is captured in a file may be lost while it is read
    with (
        staged_copy.locked(find_staging_dir(shm)),
        open(told, encoding="utf-8") as said,
        open(tells, "w", encoding="utf-8") as out,
    ):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", out)
            waiting = start(stage, source, shm, results)
        assert said.readline() == "Waiting for another process that stages data.\n"
        os.kill(waiting.pid, signal.SIGINT)
        waiting.join(60)
        waiting.kill()
        assert "KeyboardInterrupt" in capfd.readouterr().err
    assert not stage_to_shm(source, to=shm).reused


def test_two_processes_at_once_make_one_copy(source: Path, shm: Path, results: Any) -> None:
    both = [start(stage, source, shm, results) for _ in range(2)]
    (one, first), (other, second) = results.get(), results.get()
    for process in both:
        process.join()
    assert {first, second} == {True, False}
    assert one == other
    assert Path(one).read_bytes() == source.read_bytes()
    assert len(staged_copies(to=shm)) == 1


IN_SMALL_TMPFS = """
import sys
from pathlib import Path
from keepfed.errors import KeepfedError
from keepfed.loaders.staging import stage_to_shm
from tests.loaders.staging.staging_sources import Meddling

large, small, to = sys.argv[1:]

def another_job(path):
    try:
        with open(to + "/other.job", "ab", buffering=0) as file:
            while file.write(bytes(4096)): pass
    except OSError: pass

for source, fs in ((large, None), (small, Meddling(another_job))):
    try:
        stage_to_shm(source, fs=fs, to=to, progress=False)
    except KeepfedError as error:
        print(error)
    print({path.suffix for path in Path(to).rglob("*") if path.is_file()} - {".job"})
"""


def test_full_disk_is_named_and_holds_no_part(source: Path, shards: Path, shm: Path) -> None:
    mount = f'mount -t tmpfs -o size=4m tmpfs "{shm}"'
    unshare = ["unshare", "-Urm", "sh", "-c"]
    if shutil.which("unshare") is None or subprocess.run([*unshare, mount]).returncode:
        pytest.skip("this system mounts no tmpfs for a plain user")
    arguments = [sys.executable, "-c", IN_SMALL_TMPFS, str(source), str(shards), str(shm)]
    command = [*unshare, f'{mount} && exec "$@"', "sh", *arguments]
    ran = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
    assert ran.stderr == ""
    before, locks, meanwhile, locks_again = ran.stdout.splitlines()
    assert f"pulses.npy needs 12 MB, but {shm} has 4.2 MB free, and 419 kB must" in before
    assert f"The disk is full at {shm}. Free some space, or choose another" in meanwhile
    assert locks == locks_again == "{'.lock'}"


def test_missing_permission_names_the_path(source: Path, shm: Path, results: Any) -> None:
    for folder in source.parents:
        if folder.is_relative_to(Path(tempfile.gettempdir(), f"pytest-of-{getpass.getuser()}")):
            folder.chmod(0o755)  # those of pytest are private
    shm.chmod(0o555)
    start(stage, source, shm, results, True).join()
    assert results.get() == (
        f"Writing to {shm} is not allowed. To fix this, choose another folder with to=... (--to "
        "in a terminal), and run again."
    )
    shm.chmod(0o777)
    source.chmod(0)
    start(stage, source, shm, results, True).join()
    assert results.get() == (
        f"Cannot read {source}: you are not allowed to read it. Ask its owner for permission."
    )
