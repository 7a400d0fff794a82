import math
import sys

import psutil
import pytest

from course_utils.teaching.notebook import run_demo

KILL = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
GROW = "kept = []\nwhile True: kept.append(b'x' * 1_000_000)"
IN_CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {GROW!r}])"
LARGE = "Stopped, because it used more than 600 MB of memory"
CHILD = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
print(child.pid, flush=True)
"""
BOTH = "import sys; print('<b>out', flush=True); print('err', file=sys.stderr)"


@pytest.mark.slow
def test_result_and_output_are_reported() -> None:
    for program, ending, shown in (
        (BOTH, "Finished normally", "<b>out\nerr"),
        ("x = 1\nx / 0", "Ended with an error (exit status 1)", 'File "demo.py", line 2'),
        *([(KILL, "Killed by SIGKILL", "")] * (sys.platform != "win32")),
        (IN_CHILD, LARGE, ""),
        ("print('x' * 50_000)\nprint('the end')", "Finished normally", "x\nthe end"),
    ):
        demo = run_demo(program, memory_mb=600)
        assert demo.ending == ending, program
        assert demo.sentence.startswith(f"{ending}. It took ")
        assert (shown in demo.output, len(demo.output) < 21_000) == (True, True), program
        assert (ending in demo._repr_html_(), "<b>out" in demo._repr_html_()) == (True, False)


@pytest.mark.slow
def test_limits_stop_the_program_and_all_descendants() -> None:
    stopped = "Stopped after 2 s, because it was still running"
    for fresh, memory_mb, end, ending in (
        (False, 2000, "while True: pass", stopped),
        (True, math.inf, "while True: pass", stopped),  # a new Python, without memory limit
        (False, 2000, "import os; os._exit(3)", "Ended with an error (exit status 3)"),
    ):
        demo = run_demo(CHILD + end, seconds=2, memory_mb=memory_mb, fresh=fresh)
        assert demo.ending == ending
        pid = int(demo.output.splitlines()[0])
        zombie = psutil.STATUS_ZOMBIE
        assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == zombie
