"""A script in several ranks: each knows its rank, and all end in time."""

from pathlib import Path

import psutil
import pytest

from course_utils.teaching.notebook import torchrun

SCRIPT = """
import os, sys, time
name = f"{os.environ['RANK']} of {os.environ['WORLD_SIZE']}"
with open(os.path.join(sys.argv[1], name), "w") as file:
    file.write(str(os.getpid()))
time.sleep(1000 * ("wait" in sys.argv))
"""


@pytest.mark.slow
@pytest.mark.parametrize("what", [pytest.param("end", marks=pytest.mark.full), "wait"])
def test_every_rank_runs_the_script_and_no_process_is_left(what: str, tmp_path: Path) -> None:
    script, left = tmp_path / "script.py", tmp_path / "left"
    script.write_text(SCRIPT)
    left.mkdir()
    run = torchrun(script, left, what, ranks=2, seconds=60 if what == "end" else 8)
    if what == "end":
        assert sorted(path.name for path in left.iterdir()) == ["0 of 2", "1 of 2"]
        assert run.ending == "Finished normally"
    for path in left.iterdir():
        pid = int(path.read_text())
        assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
