"""Read the learner's code: what is not written yet, and which line went wrong, in one sentence."""

import ast
import inspect
import re
import sys
import sysconfig
import textwrap
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from course_utils.paths import REPO, SCRATCH

_OURS = tuple(
    str(REPO / name)
    for name in ("course_utils", "course_exercises", "course_stories", "keepfed", "notebooks")
)
_NOT_THE_LEARNERS = (*_OURS, sysconfig.get_path("stdlib"))
_INSTALLED = "-packages"  # site- or dist-, of the system, an environment or a user
_FRAME = re.compile(
    r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>.+)\n {4}(?P<code>\S.*)'
)

_ADVICE = {
    "NameError": "Check the spelling. Import or define in the same cell what a worker "
    "needs: it is a fresh Python.",
    "ModuleNotFoundError": "Check the spelling of the import.",
    "NotImplementedError": "Write this part first.",
    "PicklingError": "Workers get a pickled copy: keep lambdas, locks and open files out of it.",
    "TimeoutError": "Look for a loop that never ends, or for a worker that waits for ever.",
}
_NAMES: dict[str, str] = {}  # what the learner calls a file that is a copy, by its path
_WITH_A_VALUE = (ast.Expr, ast.Assign, ast.AnnAssign, ast.Return, ast.Yield, ast.keyword)


def find_stub(attempt: Any) -> str | None:
    """Name the first unwritten part of `attempt`, or return None if there is none.

    Unwritten is: `...` as a value, also inside a list or dict; a function or a method whose
    body is empty or still holds a `...` as a statement or as a value.
    """
    if attempt is ...:
        return "the answer"
    if isinstance(attempt, list | tuple | dict):
        values = attempt.values() if isinstance(attempt, dict) else attempt
        return "the answer" if any(value is ... for value in values) else None
    if isinstance(attempt, type):
        return _stub_in_class(attempt)
    if inspect.isroutine(attempt):
        return attempt.__name__ if _is_stub(attempt) else None
    return _stub_in_class(type(attempt)) if _is_learners(type(attempt)) else None


def _stub_in_class(kind: type) -> str | None:
    members = vars(kind)
    for name, member in members.items():
        if member is ... or any(map(_is_stub, _functions(member))):
            return f"{kind.__name__}.{name}"
    written = any(callable(m) or not name.startswith("__") for name, m in members.items())
    return None if written else kind.__name__


def _functions(member: Any) -> Iterator[Callable[..., Any]]:
    for function in (member, *(getattr(member, part, None) for part in ("__func__", "fget"))):
        if inspect.isfunction(function):
            yield function


def _is_stub(function: Any) -> bool:
    body = statements(function)
    if body is None:  # built in, or a lambda inside an expression: it is there, so it is written
        return False
    return all(isinstance(line, ast.Pass) for line in body) or any(map(_leaves_out, _own(body)))


def statements(function: Any) -> list[ast.stmt] | None:
    """Return the statements of a function but its docstring; None where it has no source."""
    try:
        source = textwrap.dedent(inspect.getsource(inspect.unwrap(function)))
        definition = ast.parse(source).body[0]
    except (OSError, TypeError, SyntaxError):
        return None
    if not isinstance(definition, ast.FunctionDef):
        return None
    return definition.body[1:] if ast.get_docstring(definition) is not None else definition.body


def _own(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """Walk the statements of a body without those of classes in it, where `...` may be meant."""
    for line in body:
        if not isinstance(line, ast.ClassDef):
            yield line
            yield from (node for child in ast.iter_child_nodes(line) for node in ast.walk(child))


def _leaves_out(node: ast.AST) -> bool:
    value = getattr(node, "value", None) if isinstance(node, _WITH_A_VALUE) else None
    return isinstance(value, ast.Constant) and value.value is ...


def _is_learners(kind: type) -> bool:
    file = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
    return kind.__module__ == "__main__" or SCRATCH in file


def explain(error: BaseException) -> str:
    """Return what was raised, and the learner's last line that led there, without a full stop.

    An error that a `DataLoader` worker sent home carries the worker's traceback in its text, so the
    text is searched and not only the frames.
    """
    kind, message = _what(error)
    ours = kind == "CourseError" and message  # a sentence, which needs no name of a class
    return ": ".join(filter(None, (learner_line(error), "" if ours else kind, message))).rstrip(".")


def advice(error: BaseException) -> str:
    """Return the usual next step after such an error, or an empty string."""
    return _ADVICE.get(_what(error)[0], "")


def _what(error: BaseException) -> tuple[str, str]:
    text = str(error).strip()
    if "Original Traceback" in text:
        kind, _, text = text.splitlines()[-1].partition(": ")
        return kind.rpartition(".")[2], text
    return type(error).__name__, text.splitlines()[0] if text else ""


def name_copy(path: Path, name: str) -> None:
    """Let what goes wrong in the file at `path` be told of as in `name`, which it is a copy of."""
    _NAMES[str(path)] = name


def learner_line(error: BaseException) -> str:
    """Return the last line of the learner's own code that led to `error`, or an empty string."""
    text = "".join(traceback.format_exception(error, chain=False))
    frames = [m for m in _FRAME.finditer(text) if not m["file"].startswith(_NOT_THE_LEARNERS)]
    own = [frame for frame in frames if _INSTALLED not in frame["file"]]
    if not own:
        return ""
    last = own[-1]
    # IPython keeps a plain cell under a name that tells the learner nothing.
    path = Path(last["file"])
    place = "the cell" if "ipykernel" in last["file"] else _NAMES.get(last["file"], path.name)
    name = "" if last["name"] == "<module>" else f" of {last['name']}"
    return f"line {last['line']}{name} in {place}, `{last['code'].strip()}`"
