"""Install the packages of a lock file into the current environment.

    python docs/install.py requirements.lock

On Linux, PyPI installs PyTorch with CUDA, which a machine without an NVIDIA driver cannot use. Such
a machine gets the builds without CUDA from PyTorch's index. The environment variable CUDA=1
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
import time
from pathlib import Path

INDEX = "https://download.pytorch.org/whl/cpu"
# GB to download, and GB on disk. tests/docs/test_install.py compares them with the installation.
SIZES = {"without CUDA": (0.5, 2.1), "with CUDA": (3.3, 6.9)}
SECONDS_TO_STOP = 15
_CUDA = re.compile(r"(?:nvidia-|cuda-|triton)")
_WHEEL = re.compile(
    r"\s*(?:Downloading|Using cached|Processing) (?:\S*/)?([^\s/]+)\.whl(?!\.metadata)( \(.+B\))?"
)


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
    """Install the packages, and return an exit code."""
    try:
        return _install(Path(arguments[0]).read_text("utf-8"))
    except KeyboardInterrupt:
        print("\nStopped. The same command continues, and reuses what it has downloaded.")
        return 130


def _install(lock: str) -> int:
    before, cpu = installed_torch(), wants_cpu()
    kind = "without CUDA" if cpu or sys.platform != "linux" else "with CUDA"
    if not before:
        _announce("Step 1 of 3: installing packages", kind)
    if cpu and f"torch=={before.partition('+')[0]}" not in lock.splitlines():
        print("No NVIDIA driver found. Installing PyTorch without CUDA. Use CUDA=1 for CUDA.")
        quick = ("--retries", "1", "--timeout", "10", "--no-deps", "--index-url", INDEX)
        if _pip(*quick, *cpu_builds(lock)):
            print(f"{INDEX} does not deliver it, so PyTorch must be installed with CUDA.")
            _announce("Installing", "with CUDA")
            _let_stop()
        importlib.invalidate_caches()
    pins = requirements(lock, cpu=installed_torch().endswith("+cpu"))
    with tempfile.TemporaryDirectory() as folder:
        chosen = Path(folder, "requirements.txt")
        chosen.write_text(pins, "utf-8")
        code = _pip("--requirement", str(chosen), count=pins.count("\n"))
    if code:
        print(f"pip failed. The end of {_log()}:\n" + "".join(_log().open().readlines()[-15:]))
    return code


def _announce(what: str, kind: str) -> None:
    """Print the sizes, and end the program if the disk is too small."""
    download, disk = SIZES[kind]
    print(f"{what} {kind}: {download} GB to download, {disk} GB on disk.", flush=True)
    free = shutil.disk_usage(sys.prefix).free / 1e9
    if free < disk:
        raise SystemExit(f"Only {free:.1f} GB are free. Free some space, and run again.")


def _let_stop() -> None:
    """Give a person at a terminal some time to stop."""
    if sys.stdin.isatty() and sys.stdout.isatty():
        print(f"This begins in {SECONDS_TO_STOP} s. To stop it, press Ctrl-C.", flush=True)
        time.sleep(SECONDS_TO_STOP)


def _log() -> Path:
    is_ours = os.access(sys.prefix, os.W_OK)  # else pip installs for this user only
    return Path(sys.prefix if is_ours else tempfile.gettempdir(), "install.log")


def _pip(*arguments: str, count: int = 0) -> int:
    """Run pip with its output in a log, and show on a terminal how far it is."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install"]
    command += ["--progress-bar", "off", *arguments]
    done, output = 0, subprocess.PIPE
    with (
        _log().open("a", 1, "utf-8") as log,
        subprocess.Popen(command, text=True, stdout=output, stderr=subprocess.STDOUT) as pip,
    ):
        for line in pip.stdout or ():
            log.write(line)
            if wheel := _WHEEL.match(line):
                done += 1
                _show(f"{done} of {count or done}: {wheel[1].split('-')[0]}{wheel[2] or ''}")
            elif line.startswith("Installing collected"):
                _show("Unpacking, which takes a few minutes")
        _show("")
    return pip.returncode


def _show(text: str) -> None:
    if sys.stdout.isatty():
        print(f"\r{text:<70.70}", end="\r" * (not text), flush=True)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
