"""The job scripts for Slurm, run without Slurm on two emulated nodes."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from course_utils.paths import REPO

SCRIPTS = REPO / "data_scripts/slurm"
STAND_INS = Path(__file__).parent / "slurm"  # srun and scontrol
KNOWN = {
    *("job-name", "nodes", "ntasks-per-node", "gpus-per-node", "cpus-per-task", "hint", "time"),
    *("mem", "signal", "requeue", "open-mode"),
}
ECHO = (
    'echo "${0##*/} $*; rank ${RANK:-} ${LOCAL_RANK:-} of ${WORLD_SIZE:-};'
    ' node $SLURM_NODEID; cores $(OMP_NUM_THREADS= nproc)"'
)
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Slurm runs on Linux")


def directives(script: str) -> dict[str, str]:
    lines = re.findall(r"^#SBATCH --([\w-]+)(?:=(\S+))?", (SCRIPTS / script).read_text(), re.M)
    return dict(lines)


def programs(folder: Path, **code: str) -> None:
    for name, line in code.items():
        (folder / name).write_text(f"#!/bin/bash\n{line}\n")
        (folder / name).chmod(0o755)


def start(script: str, *arguments: object, at: Path, cores: int = 1) -> subprocess.Popen[str]:
    """Start a job in the folder `at`, with the number of tasks per node that it requests."""
    programs(at, srun=f'exec {sys.executable} {STAND_INS / "srun.py"} "$@"')
    job = {
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_JOB_NODELIST": "node[1-2]",
        "SLURM_NTASKS_PER_NODE": directives(script).get("ntasks-per-node", "1"),
        "SLURM_CPUS_PER_TASK": str(cores),
        "SLURM_GPUS_ON_NODE": "1",
        "MASTER_PORT": str(20_000 + os.getpid() % 10_000),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(REPO),
        "PATH": f"{at}:{STAND_INS}:{os.environ['PATH']}",
    }
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    command = ["bash", SCRIPTS / script, *map(str, arguments)]
    return subprocess.Popen(command, cwd=at, env={**os.environ, **job}, **pipes)


def told(script: str, *arguments: object, at: Path, cores: int = 1) -> list[str]:
    """Run a job whose programs only print how they were called."""
    programs(at, python=ECHO, ray=ECHO, keepfed=ECHO)
    job = start(script, *arguments, at=at, cores=cores)
    said, _ = job.communicate(timeout=60)
    assert job.returncode == 0, said
    return sorted(said.splitlines())


def test_scripts_are_valid_bash_and_start_each_program_as_often_as_they_say(tmp_path: Path) -> None:
    for script in SCRIPTS.glob("*.sh"):
        assert subprocess.run(["bash", "-n", script]).returncode == 0
        assert directives(script.name).keys() <= KNOWN
        if script.name != "stage.sh":
            # two jobs on a node must use different ports
            assert "SLURM_JOB_ID % 1000" in script.read_text()
            assert "mem" in directives(script.name)
    said = told("stage.sh", "/lustre/my events", at=tmp_path)
    assert len(said) == 2
    for node, line in enumerate(said):
        assert line.startswith("keepfed stage /lustre/my events; rank   of ; ")
        assert f"node {node};" in line
    said = told("convert.sh", "/lustre/events-L", "npz", "tar", at=tmp_path, cores=2)
    assert len(said) == 2
    for line in said:
        assert line.startswith("ray symmetric-run --address 127.0.0.1:6386 --min-nodes 2 ")
        assert "--num-cpus 2 -- python -m data_scripts.convert_events /lustre/events-L " in line
        assert "--to npz tar --engine ray;" in line
        assert line.endswith("cores 2")
    said = told("train_ranks.sh", "my training.py", "--lr 1", at=tmp_path)
    assert said == sorted(
        f"python my training.py --lr 1; rank {rank} {rank % 4} of 8; node {rank // 4}; cores 1"
        for rank in range(8)
    )
    said = told("train.sh", "my training.py", at=tmp_path, cores=2)
    assert len(said) == 2
    for node, line in enumerate(said):
        assert "torch.distributed.run --nnodes=2 --nproc-per-node=1 --rdzv-id=7 " in line
        assert line.endswith(f"my training.py; rank   of ; node {node}; cores 2")


def test_job_is_queued_again_20_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs(tmp_path, python="touch started; sleep 2")
    for script, restarts, queued in (("train.sh", "19", True), ("train_ranks.sh", "20", False)):
        monkeypatch.setenv("SLURM_RESTART_COUNT", restarts)
        for left in ("started", "requeued"):
            (tmp_path / left).unlink(missing_ok=True)
        job = start(script, "my_training.py", at=tmp_path)
        while not (tmp_path / "started").exists():
            time.sleep(0.05)
        job.send_signal(signal.SIGUSR1)
        said, _ = job.communicate(timeout=60)
        assert (tmp_path / "requeued").exists() == queued, said
        assert job.returncode == 0
        assert ("limit of 20 restarts" in said) != queued
