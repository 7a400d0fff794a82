"""Start a script once for each rank, as torchrun does in a terminal, and see how it ended."""

from __future__ import annotations

import sys
from pathlib import Path

from course_utils.errors import CourseError
from course_utils.teaching.notebook.demo import Demo, run_demo

# Run where torch is loaded already; the ranks are new Pythons, as always.
_PROGRAM = """
import os, runpy, sys
os.environ["OMP_NUM_THREADS"] = "1"  # else every rank takes all cores, or is warned of it
sys.path[:] = {path!r}
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
sys.argv = ["torchrun", "--standalone", "--local-addr", "127.0.0.1"]
sys.argv += ["--nproc-per-node", "{ranks}", {script!r}, *{args!r}]
runpy.run_module("torch.distributed.run", run_name="__main__")
"""


def torchrun(script: str | Path, *args: object, ranks: int = 4, seconds: float = 120) -> Demo:
    """Run `torchrun --standalone --nproc-per-node RANKS SCRIPT ARGS`; leave no process behind.

    Args:
        script: its path, or the name of a %%worker_module.
        args: what it finds in sys.argv.
        ranks: how many processes on this machine.
        seconds: all of them are stopped after so long.

    Raises:
        CourseError: there is no such script.
    """
    module = sys.modules.get(str(script))
    path = Path(getattr(module, "__file__", None) or script).resolve()
    if not path.is_file():
        raise CourseError(
            f"There is no script {script}; give its path, or the name behind %%worker_module."
        )
    program = _PROGRAM.format(
        path=sys.path, ranks=ranks, script=str(path), args=[str(arg) for arg in args]
    )
    return run_demo(program, seconds=seconds, memory_mb=1000 + 1000 * ranks)
