"""Install the packages of a lock file into the current environment.

    python docs/install.py requirements.lock

On Linux, PyPI installs PyTorch with CUDA, 4 GB that a machine without an NVIDIA driver cannot use.
Such a machine gets the builds without CUDA from PyTorch's index. The environment variable CUDA=1
requests builds with CUDA, CUDA=0 builds without it. This file uses only the standard library.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

INDEX = "https://download.pytorch.org/whl/cpu"
_CUDA = re.compile(r"(?:nvidia-|cuda-|triton)")


def requirements(lock: str, *, cpu: bool) -> str:
    """Return the pins of the lock file. With `cpu`, omit the packages of CUDA."""
    pins = [line for line in lock.splitlines() if line and not line.startswith("#")]
    return "".join(f"{pin}\n" for pin in pins if not (cpu and _CUDA.match(pin)))


def cpu_builds(lock: str) -> list[str]:
    """Return the pins of the CPU builds of torch and torchvision."""
    return [f"{pin}+cpu" for pin in re.findall(r"^torch(?:vision)?==\S+", lock, re.MULTILINE)]


def wants_cpu() -> bool:
    """Return whether this machine needs the builds without CUDA."""
    if sys.platform != "linux":
        return False  # PyPI has builds without CUDA for other systems
    requested = os.environ.get("CUDA")
    if requested in ("0", "1"):
        return requested == "0"
    return shutil.which("nvidia-smi") is None and not Path("/proc/driver/nvidia").exists()


def installed_torch() -> str:
    """Return the installed version of torch with its build, or "" if it is not installed."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return ""


def main(arguments: list[str]) -> int:
    """Install the packages, and return the exit code of pip."""
    lock, before = Path(arguments[0]).read_text("utf-8"), installed_torch()
    if wants_cpu() and f"torch=={before.partition('+')[0]}" not in lock.splitlines():
        print("No NVIDIA driver found. Installing PyTorch without CUDA. Use CUDA=1 for CUDA.")
        quick = ("-q", "--retries", "1", "--timeout", "10", "--no-deps", "--index-url", INDEX)
        if _pip(*quick, *cpu_builds(lock), errors=subprocess.DEVNULL):
            print(f"{INDEX} cannot be reached. Installing PyTorch with CUDA (4 GB).", flush=True)
        importlib.invalidate_caches()
    pins = requirements(lock, cpu=installed_torch().endswith("+cpu"))
    with tempfile.TemporaryDirectory() as folder:
        chosen = Path(folder, "requirements.txt")
        chosen.write_text(pins, "utf-8")
        return _pip("--requirement", str(chosen))


def _pip(*arguments: str, errors: int | None = None) -> int:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", *arguments]
    return subprocess.run(command, stderr=errors).returncode


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
