"""Replacement for srun on one machine: runs the tasks of all nodes with the requested cores."""

import os
import subprocess
import sys

KNOWN = {"ntasks", "ntasks-per-node", "cpus-per-task", "cpu-bind", "hint", "kill-on-bad-exit"}


def main(*arguments: str) -> int:
    """Start the tasks, wait for them, and return the highest exit code."""
    asked, command = {}, list(arguments)
    while command[0].startswith("--"):
        option, _, value = command.pop(0)[2:].partition("=")
        if option not in KNOWN:
            sys.exit(f"srun: unrecognized option '--{option}'")
        asked[option] = value
    binding = asked.get("cpu-bind", "verbose")
    if "hint" in asked and binding != "verbose":
        sys.exit("srun: --hint is ignored beside --cpu-bind, other than --cpu-bind=verbose")
    nodes, per_node = int(os.environ["SLURM_JOB_NUM_NODES"]), int(asked["ntasks-per-node"])
    if int(asked.get("ntasks", nodes * per_node)) != nodes * per_node:
        sys.exit("srun: error: the nodes do not take so many tasks")
    each = int(asked.get("cpus-per-task", 1))  # srun ignores the value of sbatch
    cores, tasks = sorted(os.sched_getaffinity(0)), []
    for rank in range(nodes * per_node):
        place = {
            "SLURM_PROCID": str(rank),
            "SLURM_LOCALID": str(rank % per_node),
            "SLURM_NODEID": str(rank // per_node),
            "SLURM_NTASKS": str(nodes * per_node),
        }
        if (
            "cores" in binding or "hint" in asked
        ):  # the task inherits the CPU affinity of this process
            mine = range(rank * each, (rank + 1) * each)
            os.sched_setaffinity(0, {cores[core % len(cores)] for core in mine})
        tasks.append(subprocess.Popen(command, env={**os.environ, **place}))
    return max(abs(task.wait()) for task in tasks)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
