"""Analyze the learner's code: find unwritten parts, and the line that raised an error."""

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

_OURS = tuple(str(REPO / name) for name in ("course_utils", "keepfed", "notebooks"))
_NOT_THE_LEARNERS = (*_OURS, sysconfig.get_path("stdlib"))
_INSTALLED = "-packages"  # site- or dist-, of the system, an environment or a user
_FRAME = re.compile(
    r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>.+)\n {4}(?P<code>\S.*)'
)

_ADVICE = {
    "NameError": "Check the spelling. A worker is a new Python, so import or define everything it "
    "needs in the same cell.",
    "ModuleNotFoundError": "Check the spelling of the import.",
    "NotImplementedError": "Write this part first.",
    "PicklingError": "Workers get a pickled copy. Keep lambdas, locks and open files out of it.",
    "TimeoutError": "Look for an infinite loop, a waiting worker, or work that is done too often.",
}
_NAMES: dict[str, str] = {}  # path of a copied file -> its name for the learner
_WITH_A_VALUE = (ast.Expr, ast.Assign, ast.AnnAssign, ast.Return, ast.Yield, ast.keyword)


def find_stub(attempt: Any) -> str | None:
    """Return the name of the first unwritten part of `attempt`, or None if there is none.

    Unwritten parts are: `...` as a value, including in a list or dict, and a function or method
    whose body is empty or contains `...` as a statement or as a value.
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
    if body is None:  # built in, or a lambda inside an expression, so it is written
        return False
    return not body or any(map(_leaves_out, _own(body)))


def statements(function: Any) -> list[ast.stmt] | None:
    """Return the statements of a function without its docstring, or None without source code."""
    try:
        source = textwrap.dedent(inspect.getsource(inspect.unwrap(function)))
        definition = ast.parse(source).body[0]
    except (OSError, TypeError, SyntaxError):
        return None
    if not isinstance(definition, ast.FunctionDef):
        return None
    return definition.body[1:] if ast.get_docstring(definition) is not None else definition.body


def _own(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """Walk the statements of a body, except nested classes, which may use `...` on purpose."""
    for line in body:
        if not isinstance(line, ast.ClassDef):
            yield line
            yield from (node for child in ast.iter_child_nodes(line) for node in ast.walk(child))


def _leaves_out(node: ast.AST) -> bool:
    if isinstance(node, ast.Dict):
        return any(map(_is_dots, node.values))
    return isinstance(node, _WITH_A_VALUE) and _is_dots(node.value)


def _is_dots(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Constant) and value.value is ...


def _is_learners(kind: type) -> bool:
    file = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
    return kind.__module__ == "__main__" or SCRATCH in file


def explain(error: BaseException) -> str:
    """Return the error and the learner's last line that led to it, without a full stop.

    If the error comes from a `DataLoader` worker, its text contains the worker's traceback.
    Therefore the text is searched, not only the frames.
    """
    kind, message = _what(error)
    ours = kind == "CourseError" and message  # already a sentence, so the class name is not shown
    return ": ".join(filter(None, (learner_line(error), "" if ours else kind, message))).rstrip(".")


def advice(error: BaseException) -> str:
    """Return the usual next step after such an error, or an empty string."""
    return _ADVICE.get(_what(error)[0], "")


def _what(error: BaseException) -> tuple[str, str]:
    text = str(error).strip()
    if "Original Traceback" in text:
        kind, _, text = text.splitlines()[-1].partition(": ")
        return kind.rpartition(".")[2], text
    if text.startswith("DataLoader timed out"):
        return "TimeoutError", "a worker did not return its batch in time"
    return type(error).__name__, text.splitlines()[0] if text else ""


def set_display_name(path: Path, name: str) -> None:
    """Report errors in the file at `path`, a copy, as errors in `name`."""
    _NAMES[str(path)] = name


def learner_line(error: BaseException) -> str:
    """Return the learner's last line that led to `error`, or an empty string."""
    text = "".join(traceback.format_exception(error, chain=False))
    frames = [m for m in _FRAME.finditer(text) if not m["file"].startswith(_NOT_THE_LEARNERS)]
    own = [frame for frame in frames if _INSTALLED not in frame["file"]]
    if not own:
        return learner_line(error.__cause__) if error.__cause__ else ""
    last = own[-1]
    # IPython gives a plain cell a file name that means nothing to the learner.
    path = Path(last["file"])
    place = "the cell" if "ipykernel" in last["file"] else _NAMES.get(last["file"], path.name)
    name = "" if last["name"] == "<module>" else f" of {last['name']}"
    return f"line {last['line']}{name} in {place}, `{last['code'].strip()}`"
