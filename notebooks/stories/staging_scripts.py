"""The staging script of the lectures and a repaired one, to be run in notebook 07.

    print(REPAIRED)
    run_script(REPAIRED, source, place)

Where there is no bash, as on Windows, its twin in Python does the same.
"""

import filecmp
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from filelock import FileLock

from course_utils.errors import CourseError


@dataclass(frozen=True)
class Script:
    """Lines of bash that copy $source to $target, and the same in Python."""

    bash: str
    twin: Callable[[Path, Path], None] = field(repr=False)

    def __str__(self) -> str:
        return self.bash


def half_staged(folder: Path) -> tuple[Path, Path]:
    """Return a file with the pulses of `folder`, and a place where half of it lies already."""
    source = Path(tempfile.mkdtemp(), "pulses.bin")
    np.load(folder / "npy" / "pulses.npy").tofile(source)
    place = source.with_name("shm")
    place.mkdir()
    (place / source.name).write_bytes(source.read_bytes()[: source.stat().st_size // 2])
    return source, place


def run_script(script: Script, source: str | Path, place: str | Path) -> Path:
    """Run `script` on one file and return where its copy is to lie.

    Raises:
        CourseError: the script ended with an error.
    """
    source, target = Path(source), Path(place, Path(source).name)
    bash = shutil.which("bash")
    if bash is None or os.name == "nt":  # the bash of Windows sees other paths
        script.twin(source, target)
        return target
    variables = {"source": str(source), "target": str(target)}
    run = subprocess.run(
        [bash, "-c", script.bash],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        raise CourseError(
            f"The script ended with status {run.returncode}: {run.stderr.strip()} Mend it and run "
            "the cell again."
        )
    return target


def _as_in_the_lectures(source: Path, target: Path) -> None:
    if not target.exists():
        shutil.copyfile(source, target)


def _repaired(source: Path, target: Path) -> None:
    half = target.with_name(target.name + ".part")
    with FileLock(f"{target}.lock"):
        if _same(source, target):
            return
        try:
            shutil.copy2(source, half)
            if not filecmp.cmp(source, half, shallow=False):
                raise CourseError(f"{half} differs from {source}; run the script again.")
            half.replace(target)
        finally:
            half.unlink(missing_ok=True)


def _same(source: Path, target: Path) -> bool:
    if not target.exists():
        return False
    old, new = target.stat(), source.stat()
    return (old.st_size, old.st_mtime_ns) == (new.st_size, new.st_mtime_ns)


AS_IN_THE_LECTURES = Script(
    bash="""\
if [ ! -e $target ]; then
    cp $source $target
fi""",
    twin=_as_in_the_lectures,
)

REPAIRED = Script(
    bash="""\
set -euo pipefail
same() {  # size and time of change; neither reads the data
    [ -e "$target" ] && [ "$(wc -c < "$source")" -eq "$(wc -c < "$target")" ] &&
    ! [ "$source" -nt "$target" ] && ! [ "$source" -ot "$target" ]
}
exec 9> "$target.lock"
if command -v flock > /dev/null; then flock 9; fi  # one job at a time; it ends with its process
if same; then exit; fi
half="$target.part"
trap 'rm -f "$half"' EXIT   # an error or Ctrl-C leaves nothing behind
cp -p "$source" "$half"     # without room the script ends here
cmp "$source" "$half"       # what was written is what was read
mv "$half" "$target"        # at once, or not at all""",
    twin=_repaired,
)
