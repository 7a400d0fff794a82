"""The submit file for HTCondor, expanded and run without HTCondor."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from course_utils.paths import REPO

FILE = REPO / "data_scripts/htcondor/train.sub"
KNOWN = {
    *("universe", "executable", "transfer_executable", "arguments", "output", "error", "log"),
    *("request_gpus", "request_cpus", "request_memory", "request_disk", "should_transfer_files"),
    *("when_to_transfer_output", "transfer_input_files", "transfer_output_files", "gpus"),
}
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="HTCondor runs jobs on Linux")


def commands(**given: str) -> dict[str, str]:
    """Return the commands with their macros expanded, as condor_submit does."""
    lines = [line for line in FILE.read_text().splitlines() if line and line[0] != "#"]
    assert lines.pop() == "queue"
    pairs = [line.split("=", 1) for line in lines]
    values = {**given, **{name.strip(): value.strip() for name, value in pairs}}
    assert values.keys() <= KNOWN | given.keys()

    def expand(text: str) -> str:
        inner = re.sub(r"\$\((\w+)\)", lambda macro: values.get(macro[1], ""), text)
        return inner if inner == text else expand(inner)

    return {name: expand(value) for name, value in values.items()}


@pytest.mark.full
def test_job_starts_a_rank_per_gpu_with_one_thread(tmp_path: Path) -> None:
    # HTCondor would keep a comment as part of the value
    assert not [value for value in commands().values() if "#" in value]
    assert len(commands()) == len(KNOWN)
    script = tmp_path / "my_training.py"
    script.write_text(
        "import os, sys\n"
        "said = [os.environ[name] for name in ('RANK', 'WORLD_SIZE', 'OMP_NUM_THREADS')]\n"
        "open(f'{said[0]}.txt', 'w').write(' '.join([*said, *sys.argv[1:]]))\n"
    )
    job = commands(python=sys.executable, script=script.name, options="--lr 1")
    assert (job["transfer_input_files"], job["request_gpus"]) == (script.name, "4")
    # HTCondor passes none of the variables, and sets the number of threads to that of the cores
    environment = {"OMP_NUM_THREADS": job["request_cpus"], "HOME": str(tmp_path)}
    environment["LD_LIBRARY_PATH"] = os.environ.get("LD_LIBRARY_PATH", "")
    command = [job["executable"], *job["arguments"].split()]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    ranks = sorted(path.read_text() for path in tmp_path.glob("*.txt"))
    assert ranks == [f"{rank} 4 1 --lr 1" for rank in range(4)]
