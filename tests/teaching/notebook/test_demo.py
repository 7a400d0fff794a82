"""Demonstrations that break a process: told as they ended, and nothing left behind."""

import sys

import psutil
import pytest

from course_utils.teaching.notebook import run_demo


def test_output_and_a_good_end_are_told() -> None:
    demo = run_demo("""
        import sys
        print("out")
        print("err", file=sys.stderr)
        """)
    assert demo.output == "out\nerr"
    assert demo.returncode == 0
    assert demo.sentence.startswith("Ended by itself.")


def test_a_module_can_be_run_by_name() -> None:
    assert run_demo("this").output.startswith("The Zen of Python")


def test_an_error_is_told_without_the_path_of_the_script() -> None:
    demo = run_demo("x = 1\nx / 0")
    assert demo.ending == "Ended with an error (exit status 1)"
    assert 'File "demo.py", line 2' in demo.output


@pytest.mark.skipif(sys.platform == "win32", reason="no signals there")
def test_a_signal_is_named() -> None:
    demo = run_demo("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    assert demo.ending == "Killed by SIGKILL"


def test_what_would_go_on_is_stopped() -> None:
    demo = run_demo("print('started')\nwhile True: pass", seconds=0.5)
    assert demo.ending == "Stopped after 0.5 s: it would have gone on"
    assert demo.output == "started"


def test_what_takes_too_much_memory_is_stopped() -> None:
    demo = run_demo("kept = []\nwhile True: kept.append(b'x' * 1_000_000)", memory_mb=100)
    assert demo.ending == "Stopped: it held more than 100 MB of memory"
    assert demo.peak_mb > 100


def test_memory_of_children_counts() -> None:
    program = """
        import subprocess, sys
        child = "kept = []\\nwhile True: kept.append(b'x' * 1_000_000)"
        subprocess.run([sys.executable, "-c", child])
        """
    assert run_demo(program, memory_mb=100).ending.startswith("Stopped: it held more")


@pytest.mark.parametrize("ending", ["pass", "import os; os._exit(3)", "input = [].pop(0)"])
def test_no_descendant_is_left(ending: str) -> None:
    demo = run_demo(f"""
        import subprocess, sys
        child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        print(child.pid, flush=True)
        {ending}
        """)
    pid = int(demo.output.splitlines()[0])
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_long_output_keeps_its_end() -> None:
    output = run_demo("print('x' * 50_000)\nprint('the end')").output
    assert len(output) < 21_000
    assert output.endswith("the end")


def test_it_draws_itself_and_escapes_what_was_printed() -> None:
    html = run_demo("print('<b>bold</b>')")._repr_html_()
    assert "&lt;b&gt;bold" in html
    assert "Ended by itself" in html
