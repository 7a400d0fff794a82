"""Say in one sentence where the learner's code went wrong, without a page of traceback."""

import re
import sysconfig
import traceback
from pathlib import Path

from course_utils.paths import REPO

_OURS = (str(REPO / "course_utils"), str(REPO / "notebooks"))
_NOT_THE_LEARNERS = (*_OURS, *(sysconfig.get_path(k) for k in ("stdlib", "purelib", "platlib")))
_FRAME = re.compile(
    r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>.+)\n {4}(?P<code>\S.*)'
)

_ADVICE = {
    "NameError": "Import or define it in the same cell: a worker is a fresh Python.",
    "ModuleNotFoundError": "Check the spelling of the import.",
    "NotImplementedError": "Write this part first.",
    "PicklingError": "Workers get a pickled copy: keep lambdas, locks and open files out of it.",
    "TimeoutError": "Look for a loop that never ends, or for a worker that waits for ever.",
}


def explain(error: BaseException) -> str:
    """Return what was raised and the learner's last line that led there.

    An error that a `DataLoader` worker sent home carries the worker's traceback in its text, so the
    text is searched and not only the frames.
    """
    kind, message = _what(error)
    where = learner_line(error)
    return f"{where + ': ' if where else ''}{kind}{': ' + message if message else ''}"


def advice(error: BaseException) -> str:
    """Return the usual next step after such an error, or an empty string."""
    return _ADVICE.get(_what(error)[0], "")


def _what(error: BaseException) -> tuple[str, str]:
    text = str(error).strip()
    if "Original Traceback" in text:
        kind, _, text = text.splitlines()[-1].partition(": ")
        return kind.rpartition(".")[2], text
    return type(error).__name__, text.splitlines()[0] if text else ""


def learner_line(error: BaseException) -> str:
    """Return the last line of the learner's own code that led to `error`, or an empty string."""
    text = "".join(traceback.format_exception(error, chain=False))
    frames = [m for m in _FRAME.finditer(text) if not m["file"].startswith(_NOT_THE_LEARNERS)]
    if not frames:
        return ""
    last = frames[-1]
    # IPython keeps a plain cell under a name that tells the learner nothing.
    path = Path(last["file"])
    place = "the cell" if "ipykernel" in last["file"] else path.name
    name = "" if last["name"] == "<module>" else f" of {last['name']}"
    return f"line {last['line']}{name} in {place}, `{last['code'].strip()}`"
