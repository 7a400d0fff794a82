"""Processes that stage: killed, meeting each other, or out of room and rights."""

from __future__ import annotations

import gc
import multiprocessing
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tqdm import tqdm

from course_utils.loading.cache import stage_to_shm, staged_copy, staging, unstage
from course_utils.loading.cache.staged_source import key_of
from course_utils.loading.cache.staging import find_place
from course_utils.paths import REPO
from tests.loading.cache.staging_sources import (
    contents,
    hold,
    left,
    stage,
    stage_and_die,
    start,
)

if not hasattr(os, "fork"):
    pytest.skip("uses signals and forks of Unix", allow_module_level=True)
pytestmark = pytest.mark.slow

STAGE = (
    "import sys\n"
    "from course_utils.errors import CourseError\n"
    "from course_utils.loading.cache.staging import stage_to_shm\n"
    "fs = None\n"
    "{setup}\n"
    "try:\n"
    "    stage_to_shm(sys.argv[1], fs=fs, to=sys.argv[2], progress=False)\n"
    "except CourseError as error:\n"
    "    print(error)\n"
)


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    folder = tmp_path / "shards"
    folder.mkdir()
    for number in range(30):
        (folder / f"{number}.tar").write_bytes(bytes([number]) * 1000)
    return folder


def check_what_is_left(source: Path, shm: Path) -> None:
    """Demand nothing or the whole, and that the next run succeeds and clears up."""
    for copy in find_place(shm).copies():
        assert contents(copy.path) == contents(source)
    with stage_to_shm(source, to=shm, progress=False) as staged:
        assert contents(staged.path) == contents(source)
    assert unstage(source, to=shm)
    assert left(shm) == []


def test_killed_at_any_moment_there_is_nothing_or_the_whole(source: Path, shm: Path) -> None:
    rng, moments = random.Random(0), []
    for _ in range(3):
        unstage(source, to=shm)
        moments.append(stage_to_shm(source, to=shm, progress=False).seconds)
    killed = 0
    for _ in range(20):
        unstage(source, to=shm)
        results = multiprocessing.get_context("fork").SimpleQueue()
        process = start(stage, source, shm, results)
        results.get()
        process.join(rng.uniform(0, min(moments)))
        process.kill()
        process.join()
        killed += process.exitcode != 0
        check_what_is_left(source, shm)
    assert killed > 5


def test_killed_at_every_step_there_is_nothing_or_the_whole(shards: Path, shm: Path) -> None:
    for path in list(shards.iterdir())[3:]:
        path.unlink()
    step, code = 0, -9
    while code == -9:
        step += 1
        process = start(stage_and_die, shards, shm, step)
        process.join()
        code = process.exitcode
        check_what_is_left(shards, shm)
    assert code == 0
    assert step > 10


def interrupted(step: int, call: Callable[[], object]) -> None:
    """Call, with an interrupt before the step-th line of the code that stages."""
    seen = 0

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal seen
        if frame.f_code.co_filename not in (staging.__file__, staged_copy.__file__):
            return None
        seen += event == "line"
        if seen == step:
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(None)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
def test_interrupted_at_any_line_this_process_and_others_stage_again(
    tmp_path: Path, shm: Path
) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"content")
    kept = []  # as a notebook keeps an error, and with it frames and locks
    for step in range(1, 1000):
        call = partial(stage_to_shm, source, to=shm / str(step), progress=False)
        try:
            interrupted(step, call)
            break
        except KeyboardInterrupt as error:
            kept.append(error)
        assert call().path.read_bytes() == b"content"
        if step % 10 == 0:
            other = start(call)
            other.join(60)
            other.kill()
            assert other.exitcode == 0
    assert len(kept) > 100
    del kept
    gc.collect()  # here, where files that an interrupt left open are no surprise


def test_whoever_waits_says_for_whom_and_can_be_interrupted(
    source: Path, shm: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "_MOMENT_S", 0)
    results = multiprocessing.get_context("fork").SimpleQueue()
    with find_place(shm).locked(key_of(source)) as held:
        assert held
        waiting = start(stage, source, shm, results)
        said = ""
        while not said.endswith("\n"):
            said += capfd.readouterr().out
        assert said == (
            "Another process is staging the same; waiting for it "
            f"(process {os.getpid()} on {platform.node()}).\n"
        )
        os.kill(waiting.pid, signal.SIGINT)
        waiting.join(60)
        waiting.kill()
        assert "KeyboardInterrupt" in capfd.readouterr().err
    assert not stage_to_shm(source, to=shm).reused


def test_two_at_once_make_one_copy(source: Path, shm: Path) -> None:
    results = multiprocessing.get_context("fork").SimpleQueue()
    both = [start(stage, source, shm, results) for _ in range(2)]
    told = [results.get() for _ in range(4)]
    (one, first), (other, second) = filter(None, told)
    for process in both:
        process.join()
    assert {first, second} == {True, False}
    assert one == other
    assert Path(one).read_bytes() == source.read_bytes()
    assert len(find_place(shm).copies()) == 1


def test_a_copy_that_another_process_uses_stays_until_that_is_killed(
    source: Path, shm: Path
) -> None:
    context = multiprocessing.get_context("fork")
    ready, done = context.Event(), context.Event()
    process = start(hold, source, shm, ready, done)
    ready.wait()
    assert not unstage(source, to=shm)
    (copy,) = find_place(shm).copies()
    assert copy.in_use
    process.kill()
    process.join()
    find_place(shm).sweep()
    assert find_place(shm).copies() == []


def test_a_killed_process_that_drew_a_progress_bar_stops_nobody(source: Path, shm: Path) -> None:
    results = multiprocessing.get_context("fork").SimpleQueue()
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(tqdm.get_lock().acquire).exception() is None  # and it is kept
        process = start(stage, source, shm, results)
        process.join(30)
        thread.submit(tqdm.get_lock().release).result()
    process.kill()
    process.join()
    assert process.exitcode == 0


def test_workers_that_are_still_alive_do_not_keep_a_copy(source: Path, shm: Path) -> None:
    done = multiprocessing.get_context("fork").Event()
    with stage_to_shm(source, to=shm) as staged:
        worker = start(done.wait)
    assert not staged.path.exists()
    done.set()
    worker.join()


def test_what_a_killed_run_left_goes_with_the_next_of_another_source(
    source: Path, shards: Path, shm: Path
) -> None:
    start(stage_and_die, shards, shm, 30).join()
    assert list(find_place(shm).folder.glob(".*.unfinished"))
    stage_to_shm(source, to=shm)
    assert not list(find_place(shm).folder.glob(".*.unfinished"))


def in_small_tmpfs(source: Path, shm: Path, options: str, setup: str = "") -> tuple[str, str]:
    """Return what staging into a small tmpfs says, and what it leaves there."""
    mount = f'mount -t tmpfs -o {options} tmpfs "$2"'
    unshare = ["unshare", "-Urm", "sh", "-c"]
    try:
        run = subprocess.run([*unshare, mount, "sh", "", str(shm)], capture_output=True)
    except FileNotFoundError:
        pytest.skip("there is no unshare here")
    if run.returncode:
        pytest.skip("this kernel mounts no tmpfs for a plain user")
    script = f'{mount} && "$3" -c "$4" "$1" "$2" && find "$2" -type f'
    arguments = [str(source), str(shm), sys.executable, STAGE.format(setup=setup)]
    ran = subprocess.run(
        [*unshare, script, "sh", *arguments],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=True,
    )
    said, _, left = ran.stdout.partition("\n")
    assert ran.stderr == ""
    return said, left


def test_a_full_disk_is_noticed_before(source: Path, shm: Path) -> None:
    said, left = in_small_tmpfs(source, shm, "size=4m")
    assert f"pulses.npy needs 12 MB, but {shm} has 4.2 MB free, of which 419 kB are kept" in said
    assert {Path(path).suffix for path in left.split()} == {".lock"}


def test_a_disk_that_becomes_full_meanwhile_holds_no_copy(shards: Path, shm: Path) -> None:
    said, left = in_small_tmpfs(shards, shm, "size=4m,nr_inodes=20")
    assert said.startswith(f"{shm} became full while it was copied to, so there is no copy; remove")
    assert {Path(path).suffix for path in left.split()} == {".lock"}


def test_another_job_that_takes_the_rest_meanwhile_leaves_no_half_copy(
    shards: Path, shm: Path
) -> None:
    setup = (
        "from tests.loading.cache.staging_sources import Meddling\n"
        "def fill(path):\n"
        "    try:\n"
        "        with open(sys.argv[2] + '/other.job', 'ab', buffering=0) as file:\n"
        "            while file.write(bytes(4096)): pass\n"
        "    except OSError: pass\n"
        "fs = Meddling(fill)"
    )
    said, left = in_small_tmpfs(shards, shm, "size=4m", setup)
    assert said.startswith(f"{shm} became full while it was copied to, so there is no copy; remove")
    assert {Path(path).suffix for path in left.split()} == {".lock", ".job"}


def test_nothing_more_can_be_written_at_some_byte(source: Path, tmp_path: Path) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (10**6, 10**6))"
    assert said_by(source, tmp_path / "to", limit).startswith("The disk is full")
    assert len(list((tmp_path / "to").rglob("*"))) == 2  # private folder and lock


def said_by(source: Path, to: Path, setup: str) -> str:
    code = STAGE.format(setup=setup)
    command = [sys.executable, "-c", code, str(source), str(to)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.count("\n") == 1
    return said


AS_NOBODY = "import os; os.geteuid() or os.setuid(65534)"  # root may do everything


def test_a_place_where_writing_is_not_allowed_is_named(source: Path, shm: Path) -> None:
    shm.chmod(0o555)
    assert said_by(source, shm, AS_NOBODY) == (
        f"Writing to {shm} is not allowed; name another place with to=... (--to in a terminal).\n"
    )


def test_a_source_that_may_not_be_read_is_named(source: Path, shm: Path) -> None:
    for folder in source.parents[:2]:
        folder.chmod(0o755)  # those of pytest are private
    source.chmod(0)
    shm.chmod(0o777)
    said = said_by(source, shm, AS_NOBODY)
    shutil.rmtree(shm / "fast-data-loaders-65534", ignore_errors=True)
    assert said == (
        f"Reading {source} is not allowed; ask its owner, or name a copy of your own.\n"
    )
