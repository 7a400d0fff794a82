"""Demonstrations that crash a process: their result is reported, and nothing is left behind."""

import math
import sys

import psutil
import pytest

from course_utils.teaching.notebook import run_demo

KILL = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
GROW = "kept = []\nwhile True: kept.append(b'x' * 1_000_000)"
BOTH = "import sys; print('<b>out'); print('err', file=sys.stderr)"


@pytest.mark.parametrize(
    ("program", "ending", "shown"),
    [
        (BOTH, "Finished normally", "<b>out\nerr"),
        ("x = 1\nx / 0", "Ended with an error (exit status 1)", 'File "demo.py", line 2'),
        pytest.param(
            *(KILL, "Killed by SIGKILL", ""),
            marks=pytest.mark.skipif(sys.platform == "win32", reason="no signals there"),
        ),
        (
            f"import subprocess, sys; subprocess.run([sys.executable, '-c', {GROW!r}])",
            *("Stopped, because it used more than 600 MB of memory", ""),
        ),
        ("print('x' * 50_000)\nprint('the end')", "Finished normally", "x\nthe end"),
    ],
    ids=lambda value: value.replace("\n", " ")[:24],
)
@pytest.mark.slow
def test_result_and_output_are_reported(program: str, ending: str, shown: str) -> None:
    demo = run_demo(program, memory_mb=600)
    assert demo.ending == ending
    assert demo.sentence.startswith(f"{ending}. It took ")
    assert shown in demo.output
    assert len(demo.output) < 21_000
    assert ending in demo._repr_html_()
    assert "<b>out" not in demo._repr_html_()


@pytest.mark.parametrize("ending", ["while True: pass", "import os; os._exit(3)"])
@pytest.mark.parametrize("fresh", [False, True])  # True: a new Python, without memory limit
@pytest.mark.slow
def test_limits_stop_the_program_and_all_descendants(ending: str, fresh: bool) -> None:
    demo = run_demo(
        f"""
        import subprocess, sys
        child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        print(child.pid, flush=True)
        {ending}
        """,
        seconds=2,
        memory_mb=math.inf if fresh else 2000,
        fresh=fresh,
    )
    stopped = "Stopped after 2 s, because it was still running"
    assert demo.ending == (stopped if "while" in ending else "Ended with an error (exit status 3)")
    pid = int(demo.output.splitlines()[0])
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
