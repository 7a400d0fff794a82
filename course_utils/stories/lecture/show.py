"""Run a lecture demo in a subprocess, and show its recording if that fails.

A demo is a module `programs/NAME.py` with a function `run()` that returns a `Finding`. Its
recording is `notebooks/recordings/demos/NAME.json`. Showing a recording takes less than a second
and does not import torch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from importlib import import_module, metadata
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from course_utils import paths
from course_utils.errors import CourseError
from course_utils.hardware.machine import stamp
from course_utils.stories.lecture.finding import Finding, load_finding, save_finding
from course_utils.teaching.notebook import data_path, run_demo, start_workers
from keepfed.errors import KeepfedError, sentence
from keepfed.files import replace_file

_HOME = "course_utils.stories.lecture.programs"
_PATIENCE = 2  # time limit of a demo, relative to its recorded time
_PATIENCE_S = 20  # minimum time limit, because a busy machine takes long to import torch
_LONGEST_S = 300
_PROGRAM = """
from pathlib import Path
from course_utils.stories.lecture.show import run_and_save

if __name__ == "__main__":
    run_and_save({name!r}, Path({path!r}))
"""


def demos() -> Mapping[str, str]:
    """Return the title of each demo by name, in the order of a lecture."""
    named: Mapping[str, str] = import_module(_HOME).DEMOS
    return named


def seconds_of(name: str) -> float:
    """Return the recorded time of a demo in seconds."""
    return float(_recorded(name).about["seconds"])


def show(name: str, *, recorded: bool = False, timeout: float | None = None) -> tuple[Path, str]:
    """Run demo `name`, or use its recording, and return the page and a message.

    Args:
        name: a key of `demos`.
        recorded: use the recording without running the demo.
        timeout: time limit in seconds. The default is twice the recorded time, and at least 20.

    Raises:
        CourseError: If the demo does not exist, or a required recording does not exist.
    """
    title, finding, said = _title(name), None, []
    if not recorded:
        with TemporaryDirectory(prefix="demo-") as folder:
            found = Path(folder) / "found.json"
            patience_s = max(_PATIENCE_S, _PATIENCE * seconds_of(name))
            if failure := _run(name, found, patience_s if timeout is None else timeout):
                said.append(f"{failure}. Here is its recording instead.")
            else:
                finding = load_finding(found, recorded=False)
    if live := finding is not None:
        said.append(finding.sentence)
    else:
        finding = _recorded(name)
        said += [f"Recorded on {finding.about['machine']}:", finding.sentence]
    page = paths.course_home() / "work" / "demos" / f"{name}.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    replace_file(page, finding.page(title, recorded=not live))
    return page, "\n".join(said)


def record(name: str) -> Path:
    """Run demo `name`, store its result as the recording, and return the file.

    Raises:
        CourseError: If the demo does not exist, or fails.
    """
    _title(name)
    folder = paths.shipped("notebooks/recordings") / "demos"
    folder.mkdir(parents=True, exist_ok=True)
    if failure := _run(name, folder / f"{name}.json", _LONGEST_S):
        raise CourseError(f"{failure}. Fix the problem and record the demo again.")
    return folder / f"{name}.json"


def run_and_save(name: str, path: Path) -> None:
    """Run a demo in this process, and write its result to `path`."""
    start_workers()  # first, so that its server imports torch at the same time as this process
    finding: Finding = import_module(f"{_HOME}.{name}").run()
    save_finding(
        finding,
        path,
        machine=stamp(),
        torch=metadata.version("torch"),
        command=f"course demo {name}",
        seconds=round(time.time() - psutil.Process().create_time(), 1),
    )


def _run(name: str, path: Path, seconds: float) -> str:
    """Run a demo in a subprocess, and return the reason of a failure, or ""."""
    program = _PROGRAM.format(name=name, path=str(path))
    try:
        data_path("events", "S")
        demo = run_demo(program, seconds=seconds, memory_mb=math.inf, fresh=True)
    except KeyboardInterrupt:
        return "The demo was interrupted"
    except (KeepfedError, OSError) as error:
        return f"The demo cannot run ({sentence(error)})"
    if demo.returncode == 0:
        return ""
    last = f" ({demo.output.splitlines()[-1]})" if demo.returncode > 0 and demo.output else ""
    return f"{demo.ending}{last}"


def _recorded(name: str) -> Finding:
    _title(name)
    return load_finding(paths.recording(f"demos/{name}.json"))


def _title(name: str) -> str:
    if name not in demos():
        raise CourseError(f"There is no demo {name!r}. Choose one of: {', '.join(demos())}.")
    return demos()[name]
