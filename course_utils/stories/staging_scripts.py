"""A common staging script and its repaired version, for notebook 07.

Without bash, for example on Windows, a Python function copies instead.
"""

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np

from course_utils.errors import CourseError
from keepfed.files import temporary_folder


def truncated_copy(folder: Path) -> tuple[Path, Path]:
    """Return a file with the pulses of `folder`, and a folder with a truncated copy of it.

    Both are deleted when Python exits.
    """
    source = temporary_folder() / "pulses.bin"
    np.load(folder / "npy" / "pulses.npy").tofile(source)
    place = source.with_name("shm")
    place.mkdir()
    (place / source.name).write_bytes(source.read_bytes()[: source.stat().st_size // 2])
    return source, place


def run_script(script: str, source: str | Path, place: str | Path) -> Path:
    """Run `script` on one file, and return the path of its copy.

    Raises:
        CourseError: If the script fails.
    """
    source, target = Path(source), Path(place, Path(source).name)
    bash = shutil.which("bash")
    if bash is None or os.name == "nt":  # bash on Windows uses other paths
        _without_bash(script, source, target)
        return target
    run = subprocess.run(
        [bash, "-c", script],
        env={**os.environ, "source": str(source), "target": str(target)},
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        raise CourseError(
            f"The script failed with status {run.returncode}: {run.stderr.strip()} Fix the script "
            "and run the cell again."
        )
    return target


COMMON_SCRIPT = """\
if [ ! -e $target ]; then
    cp $source $target
fi"""

REPAIRED_SCRIPT = """\
set -euo pipefail
same() {  # compare size and modification time, without reading the data
    [ -e "$target" ] && [ "$(wc -c < "$source")" -eq "$(wc -c < "$target")" ] &&
    ! [ "$source" -nt "$target" ] && ! [ "$source" -ot "$target" ]
}
exec 9> "$target.lock"
if command -v flock > /dev/null; then flock 9; fi  # one job at a time, until its process ends
if same; then exit; fi
half="$target.part"
trap 'rm -f "$half"' EXIT   # clean up after an error or Ctrl-C
cp -p "$source" "$half"     # fails if the disk is full
cmp "$source" "$half"       # verify the copy
mv "$half" "$target"        # rename atomically"""


def _without_bash(script: str, source: Path, target: Path) -> None:
    """Do what the script does, but without a lock and a comparison."""
    if script == COMMON_SCRIPT and target.exists():
        return
    half = target.with_name(f"{target.name}.part")
    shutil.copy2(source, half)
    half.replace(target)
