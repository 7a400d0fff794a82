"""`keepfed stage` reports when a copy in /dev/shm is private, short-lived or can be swapped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from keepfed import command, limits
from keepfed.loaders.staging import shm_notes as notes_module
from keepfed.loaders.staging import stage
from keepfed.loaders.staging.shm_notes import container_hint, shm_notes

SYSTEMD = "25 24 0:23 / /dev/shm rw,nosuid,nodev shared:4 - tmpfs tmpfs rw,inode64\n"
SLURM = SYSTEMD + "90 25 0:77 / /dev/shm rw,relatime - tmpfs tmpfs rw\n"
JOB_TMP = "91 24 8:1 /storage/4711/.4711 /tmp rw,relatime - ext4 /dev/sda1 rw\n"
DOCKER = "70 60 0:50 / /dev/shm rw,nosuid,nodev,noexec - tmpfs shm rw,size=65536k\n"
NO_SWAP = "25 24 0:23 / /dev/shm rw,nosuid,nodev - tmpfs tmpfs rw,noswap\n"


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Emulate a system: mounts, Slurm job, configuration of logind, and bytes of swap."""

    def set_up(
        mounts: str = SYSTEMD, job: str = "", logind: dict[str, str] | None = None, swap: int = 0
    ) -> None:
        (tmp_path / "mountinfo").write_text(mounts)
        for name, text in (logind or {}).items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        if logind is not None:
            (tmp_path / "seats").mkdir(exist_ok=True)
        monkeypatch.setattr(notes_module, "_MOUNTS", tmp_path / "mountinfo")
        monkeypatch.setattr(notes_module, "_LOGIND", tmp_path / "seats")
        monkeypatch.setattr(notes_module, "_LINGER", tmp_path / "linger")
        monkeypatch.setattr(notes_module, "_CONFIGS", [tmp_path / "etc", tmp_path / "usr"])
        monkeypatch.setattr(notes_module, "swap", lambda: swap)
        monkeypatch.setattr(notes_module, "shm_size", lambda: 10**9)
        monkeypatch.setattr("os.getuid", lambda: 1000, raising=False)
        monkeypatch.setenv("USER", "marie")
        monkeypatch.delenv("SLURM_JOB_ID", raising=False)
        if job:
            monkeypatch.setenv("SLURM_JOB_ID", job)

    return set_up


@pytest.mark.parametrize(
    ("mounts", "job", "owner"),
    [
        (SYSTEMD, "", None),
        (SYSTEMD, "4711", None),  # a cluster without the plugin
        (SLURM, "", None),  # options alone are not enough outside of a job
        (SLURM, "4711", "Only Slurm job 4711"),
        (SYSTEMD + JOB_TMP, "4711", "Only Slurm job 4711"),
        (SYSTEMD + JOB_TMP, "471", None),
        (DOCKER, "", "Only this container"),
        ("", "4711", None),
    ],
)
def test_private_shm_is_reported(
    mounts: str, job: str, owner: str | None, system: Callable[..., None]
) -> None:
    system(mounts, job)
    found = shm_notes()
    if owner is None:
        assert found == []
    else:
        (note,) = found
        assert note.startswith(f"{owner} can see this copy, and the copy is deleted when")


@pytest.mark.parametrize(
    ("logind", "deleted"),
    [
        ({}, True),  # the default of systemd
        ({"etc/logind.conf": "[Login]\n#RemoveIPC=yes\n"}, True),
        ({"usr/logind.conf": "[Login]\n#RemoveIPC=no\n"}, False),  # the default of Red Hat
        ({"etc/logind.conf": "RemoveIPC=no\n"}, False),
        ({"etc/logind.conf": "RemoveIPC=no\n#RemoveIPC=yes\n"}, False),
        ({"etc/logind.conf": "", "usr/logind.conf.d/5.conf": "RemoveIPC=no\n"}, False),
        (
            {
                "usr/logind.conf.d/5.conf": "RemoveIPC=no\n",
                "etc/logind.conf.d/5.conf": "RemoveIPC=1\n",
            },
            True,
        ),
        ({"linger/marie": ""}, False),
    ],
)
def test_deletion_at_logout_is_reported(
    logind: dict[str, str], deleted: bool, system: Callable[..., None]
) -> None:
    system(logind=logind)
    assert [note.split(" (")[0] for note in shm_notes()] == (
        ["systemd deletes this copy when you log out completely"] if deleted else []
    )


def test_system_users_keep_their_files(
    system: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    system(logind={})
    monkeypatch.setattr("os.getuid", lambda: 0, raising=False)
    assert shm_notes() == []


def test_swap_is_reported_unless_shm_never_swaps(system: Callable[..., None]) -> None:
    system(swap=8 * 10**9)
    (note,) = shm_notes()
    assert note.startswith("This machine has 8.00 GB of swap.")
    system(NO_SWAP, swap=8 * 10**9)
    assert shm_notes() == []


def test_swap_limit_of_the_job_counts(
    emulate_cgroup: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("psutil.swap_memory", lambda: SimpleNamespace(total=10**9))
    emulate_cgroup({"memory.swap.max": "max"})
    assert limits.swap() == 10**9
    emulate_cgroup({"memory.swap.max": "0"})
    assert limits.swap() == 0


def test_default_size_of_a_container_is_reported(
    system: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    system()
    monkeypatch.setattr(notes_module, "shm_size", lambda: 64 * 2**20)
    assert "/dev/shm holds only 67 MB, the default of a container" in shm_notes()[0]
    assert container_hint(None) == container_hint(10**9) == ""


def test_stage_command_prints_notes_only_for_a_copy_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "events").write_bytes(b"events")
    monkeypatch.setattr(stage, "shm_notes", lambda: ["It is private."])
    empty = SimpleNamespace(total=10**9, free=10**9)
    monkeypatch.setattr("shutil.disk_usage", lambda _: empty)
    for in_memory in (True, False):
        monkeypatch.setattr(stage, "SHM", tmp_path if in_memory else Path("/nowhere"))
        arguments = ["stage", str(tmp_path / "events"), "--to", str(tmp_path / "to")]
        assert command.main(arguments) == 0
        assert ("Note: It is private." in capsys.readouterr().out) == in_memory
