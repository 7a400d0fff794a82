"""Real processes that are killed, run out of disk, or meet each other."""

import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from course_utils.loading.events import FORMATS
from data_scripts import files

resource = pytest.importorskip("resource", reason="uses signals and limits of Unix")
pytestmark = pytest.mark.slow
CODE = (
    "import sys; from data_scripts import make_events as m\n"
    "m.COUNTS['S'] = 600; sys.exit(m.main(['--size', 'S', '--out', *sys.argv[1:]]))"
)


def start(
    out: Path, *options: str, code: str = CODE, limit: Callable[[], None] | None = None
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, str(out), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=limit,
    )


def end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate()
    return process.returncode, out, err


def kill_after(process: subprocess.Popen[str], seconds: float) -> None:
    try:
        process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


def test_killed_at_any_moment_there_is_nothing_or_the_whole(tmp_path: Path) -> None:
    rng = random.Random(0)
    for attempt in range(5):
        out = tmp_path / f"events-{attempt}"
        kill_after(start(out), rng.uniform(0.2, 1.2))
        assert not out.exists() or files.corrupted(out) == []
        assert end(start(out))[0] == 0
        assert files.corrupted(out) == []
    assert not list(tmp_path.glob(".*unfinished"))


def test_killed_while_replacing_there_is_nothing_or_the_whole(tmp_path: Path) -> None:
    out = tmp_path / "events"
    assert end(start(out))[0] == 0
    rng = random.Random(1)
    for _ in range(4):
        kill_after(start(out, "--force"), rng.uniform(0.2, 1.2))
        assert not out.exists() or files.corrupted(out) == []
    assert end(start(out))[0] == 0


def test_killed_while_adding_formats_there_is_no_half_format(tmp_path: Path) -> None:
    out = tmp_path / "events"
    assert end(start(out))[0] == 0
    names = ["npz-deflate", "sqlite", "root"]
    # so many seconds of work and not of time: it is the same moment on a busy machine
    code = (
        "import signal, sys; from data_scripts.convert_events import main\n"
        "signal.setitimer(signal.ITIMER_VIRTUAL, float(sys.argv.pop()))\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    ends = []
    for seconds in ("0.1", "0.2", "0.3", "0.6", "60"):
        ends.append(end(start(out, "--to", *names, seconds, code=code))[0])
        assert files.sizes_match(out, files.read_manifest(out) or {})
        assert files.corrupted(out) == []

    assert ends[0] == -signal.SIGVTALRM
    assert ends[-1] == 0
    assert {FORMATS[name].entry for name in names} <= {path.name for path in out.iterdir()}
    assert not list(out.glob(".*"))


def test_two_at_once_make_it_once(tmp_path: Path) -> None:
    out = tmp_path / "events"
    both = [start(out), start(out)]
    results = [end(process) for process in both]

    assert [code for code, *_ in results] == [0, 0]
    assert sum("made in" in said for _, said, _ in results) == 1
    assert sum("already there" in said for _, said, _ in results) == 1
    assert files.corrupted(out) == []


@pytest.mark.parametrize("limit_kb", [1, 100, 500, 900])
def test_when_nothing_more_can_be_written_it_says_so_and_leaves_nothing(
    tmp_path: Path, limit_kb: int
) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit_kb * 1024, limit_kb * 1024))

    code, _, said = end(start(tmp_path / "events", limit=limit))

    assert code == 1
    assert said == (
        "The disk is full; free some space or name another place with --out "
        "(or COURSE_DATA), and run again.\n"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == [".events.lock"]


def test_a_folder_where_writing_is_not_allowed_is_named(tmp_path: Path) -> None:
    as_nobody = "import os; os.geteuid() or os.setuid(65534)\n"  # root may write everywhere
    imports, call = CODE.split("\n")
    tmp_path.chmod(0o555)
    code, _, said = end(start(tmp_path / "events", code=f"{imports}\n{as_nobody}{call}"))
    tmp_path.chmod(0o755)

    assert code == 1
    assert "is not allowed; name another place with --out" in said
    assert len(said.splitlines()) == 1
