"""Remember what a failed cell should have defined, so that no check grades an older version."""

import ast
import re
from typing import Any

_PLAIN = (bool, int, float, str, bytes, type(None))  # equal values are often the same object
_DEFINITION = re.compile(r"^(?:def|class)\s+(\w+)|^(\w+)\s*(?::[^=\n]+)?=(?!=)", re.MULTILINE)
_failed: dict[str, Any] = {}  # name -> the object that it still refers to


def watch_cells(shell: Any) -> None:
    """Note after each cell of an IPython shell whether what it defines is up to date."""

    def note(result: Any) -> None:
        for name in _defined_names(result.info.raw_cell or ""):
            _failed.pop(name, None)
            if not result.success and name in shell.user_ns:
                _failed[name] = shell.user_ns[name]

    shell.events.register("post_run_cell", note)


def failed_name(attempt: Any) -> str | None:
    """Return the name of `attempt` if the last cell that defines this name ended with an error."""
    if isinstance(attempt, _PLAIN):
        return None
    return next((name for name, old in _failed.items() if old is attempt), None)


def _defined_names(cell: str) -> set[str]:
    """Return the names that a cell binds, even if the cell is not valid Python."""
    try:
        body = ast.parse(re.sub(r"^%%.*", "", cell)).body
    except SyntaxError:
        return {one or other for one, other in _DEFINITION.findall(cell)}
    names = {one.name for one in body if isinstance(one, ast.FunctionDef | ast.ClassDef)}
    targets = [target for one in body if isinstance(one, ast.Assign) for target in one.targets]
    return names | {target.id for target in targets if isinstance(target, ast.Name)}
