import os

from keepfed import limits


def test_usable_cores_respect_affinity_and_all_groups(emulate_cgroup):
    for files, own, cores in (
        ({"cpu.max": "max 100000"}, "0::/\n", 8),
        ({"cpu.max": "50000 100000"}, "0::/\n", 1),
        ({"job/cpu.max": "250000 100000", "job/step/cpu.max": "max 1"}, "0::/job/step\n", 2),
        ({"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "100000"}, "1:cpu:/\n", 2),
        ({"cpu/cpu.cfs_quota_us": "-1"}, "1:cpu:/\n", 8),
    ):
        emulate_cgroup(files, own)
        assert limits.usable_cores() == cores, files


def test_affinity_is_empty_for_an_unknown_process():
    assert limits.affinity() == limits.affinity(os.getpid())
    assert limits.affinity(2**30) == set()


JOB = "memory/slurm/job_7/memory."
VERSION_1 = {
    "memory/memory.limit_in_bytes": "9223372036854771712",
    "memory/memory.usage_in_bytes": "800000000",
    f"{JOB}limit_in_bytes": "500000000",
    f"{JOB}usage_in_bytes": "400000000",
    f"{JOB}stat": "inactive_file 9\ntotal_inactive_file 100000000\n",
}
VERSION_2 = {"memory.max": "500000000", "memory.current": "400000000"}
VERSION_2["memory.stat"] = "anon 7\ninactive_file 100000000\n"


def test_memory_respects_limits_and_counts_cached_files_as_free(emulate_cgroup):
    job = "4:memory,hugetlb:/slurm/job_7\n1:cpu,cpuacct:/\n"
    for files, own in (VERSION_2, "0::/\n"), (VERSION_1, job):
        emulate_cgroup(files, own)
        assert (limits.memory(), limits.memory_free()) == (500_000_000, 200_000_000), files
        emulate_cgroup(dict.fromkeys(files, "max"))
        assert limits.memory() > 500_000_000, files
