"""Run a script once per rank, like torchrun in a terminal, and report how it ended."""

from __future__ import annotations

import sys
from pathlib import Path

from course_utils.errors import CourseError
from course_utils.teaching.notebook.demo import Demo, loaded_context, run_demo
from course_utils.teaching.notebook.start import PRELOAD

_RANK_MB = 1000  # average memory limit of a rank, including its workers
# In a terminal, every rank is a new Python that takes seconds to load torch. Here one server loads
# torch and the ranks are forked from it. They run the same script.
_PROGRAM = """
if __name__ == "__main__":
    import multiprocessing, os, sys
    import torch
    from torch.distributed.run import main

    if torch.cuda.device_count() < {ranks}:  # in NCCL, ranks cannot share a GPU
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    sys.path[:] = {path!r}
    os.environ["OMP_NUM_THREADS"] = "1"  # otherwise every rank uses all cores
    os.environ["PYTHONUNBUFFERED"] = "1"
    if {method!r} == "forkserver":
        multiprocessing.set_forkserver_preload({preload!r})
    main(["--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", "{ranks}",
          "--log-dir", os.path.dirname(__file__),  # deleted after the demonstration
          "--start-method", {method!r}, "--run-path", {script!r}, *{args!r}])
"""


def torchrun(script: str | Path, *args: object, ranks: int = 4, seconds: float = 120) -> Demo:
    """Run `torchrun --standalone --nproc-per-node RANKS SCRIPT ARGS`, and leave no process behind.

    Args:
        script: Path of the script, or the name of a %%worker_module.
        args: Arguments of the script, in its sys.argv.
        ranks: Number of processes on this machine.
        seconds: Time limit for all ranks.

    Raises:
        CourseError: If there is no such script.
    """
    module = sys.modules.get(str(script))
    path = Path(getattr(module, "__file__", None) or script).resolve()
    if not path.is_file():
        raise CourseError(
            f"There is no script {script}. Pass its path, or the name after %%worker_module."
        )
    program = _PROGRAM.format(
        path=sys.path,
        method=loaded_context().get_start_method(),
        preload=[*PRELOAD, "course_utils.hardware.gpu", "keepfed.measure.ranks"],
        ranks=ranks,
        script=str(path),
        args=[str(arg) for arg in args],
    )
    return run_demo(program, seconds=seconds, memory_mb=_RANK_MB * (1 + ranks))
