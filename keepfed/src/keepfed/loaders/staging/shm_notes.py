"""Report who can see a copy in /dev/shm, how long the copy lasts, and whether it can be swapped."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from keepfed.formatting import size
from keepfed.limits import SHM, known, shm_size, swap

_MOUNTS = Path("/proc/self/mountinfo")
_LOGIND = Path("/run/systemd/seats")  # systemd-logind creates this folder when it starts
_LINGER = Path("/var/lib/systemd/linger")
_CONFIGS = [Path(top, "systemd") for top in ("/etc", "/run", "/usr/local/lib", "/usr/lib")]
_REMOVE_IPC = re.compile(r"^\s*(#?)\s*RemoveIPC\s*=\s*(\w+)", re.MULTILINE)
_FIRST_USER = 1000  # logind keeps the files of system users, who have smaller user IDs
_CONTAINER_SHM = 64 * 2**20  # bytes, the default of Docker and Kubernetes


def shm_notes() -> list[str]:
    """Return what the user of a copy in /dev/shm should know, one sentence or two per note."""
    notes = []
    if private := known(_private_to):
        notes.append(
            f"Only {private} can see this copy, and the copy is deleted when {private} ends. Other "
            "jobs must stage again."
        )
    elif known(_is_deleted_at_logout):
        notes.append(
            "systemd deletes this copy when you log out completely (RemoveIPC=yes). To keep it, "
            "run `loginctl enable-linger`, or stage at the start of each job."
        )
    if hint := container_hint(known(shm_size)):
        notes.append(f"{hint.strip()} Workers also need it for their batches.")
    if (swap_size := known(swap)) and not known(_never_swaps):
        notes.append(
            f"This machine has {size(swap_size)} of swap. If memory runs short, parts of the copy "
            "move to disk and become slow to read."
        )
    return notes


def container_hint(shm_bytes: int | None) -> str:
    """Return a sentence, after a space, if /dev/shm has the default size of a container."""
    if shm_bytes != _CONTAINER_SHM:
        return ""
    return (
        f" /dev/shm holds only {size(shm_bytes)}, the default of a container. Start the container "
        "with --shm-size=2g or --ipc=host."
    )


class _Mount(NamedTuple):
    """One line of mountinfo."""

    root: str  # path of the mounted folder within its file system
    folder: str
    options: list[str]
    source: str
    super_options: list[str]


def _mounts() -> Iterator[_Mount]:
    for line in _MOUNTS.read_text().splitlines():
        of_mount, of_system = line.split(" - ", 1)
        _, _, _, root, folder, options, *_ = of_mount.split()
        _, source, super_options = of_system.split()[:3]
        yield _Mount(root, folder, options.split(","), source, super_options.split(","))


def _shm() -> _Mount:
    """Return the mount of /dev/shm that is visible, which is the last one."""
    return [mount for mount in _mounts() if mount.folder == str(SHM)][-1]


def _private_to() -> str:
    """Return the job or container that alone sees /dev/shm, or an empty string."""
    shm, job = _shm(), os.environ.get("SLURM_JOB_ID")
    # Slurm's job_container/tmpfs mounts /dev/shm without options, systemd mounts it with nosuid.
    # The plugin also mounts /tmp from a folder that is named after the job.
    if job and ("nosuid" not in shm.options or any(job in Path(m.root).parts for m in _mounts())):
        return f"Slurm job {job}"
    return "this container" if shm.source == "shm" else ""


def _is_deleted_at_logout() -> bool:
    """Return whether systemd deletes the user's files in /dev/shm at the end of the last session.

    A line without `#` overrides the default, which the main configuration file shows after `#`.
    """
    user = known(lambda: os.environ["USER"]) or ""
    if os.getuid() < _FIRST_USER or not _LOGIND.exists() or (user and (_LINGER / user).exists()):
        return False
    main = [folder / "logind.conf" for folder in _CONFIGS if (folder / "logind.conf").exists()]
    extra = {
        path.name: path  # for equal names, the file in /etc counts
        for folder in reversed(_CONFIGS)
        for path in (folder / "logind.conf.d").glob("*.conf")
    }
    value = "yes"
    for path in [*main[:1], *(extra[name] for name in sorted(extra))]:
        found = _REMOVE_IPC.findall(path.read_text())
        values = [word for mark, word in found if not mark] or [word for _, word in found]
        value = values[-1] if values else value
    return value.lower() in ("yes", "true", "on", "1", "y", "t")


def _never_swaps() -> bool:
    return "noswap" in _shm().super_options
