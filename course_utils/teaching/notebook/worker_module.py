"""`%%worker_module NAME`: write a cell to a file that workers can import.

A worker is a new Python process. With spawn and forkserver, it receives only the name of a class
and imports the class from a file, so a class that is defined in the notebook fails. The magic
writes the cell to a file, imports the file, and adds its names to the notebook.
"""

import builtins
import importlib
import importlib.util
import keyword
import os
import symtable
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from course_utils.errors import CourseError
from course_utils.paths import scratch_folder
from course_utils.teaching.notebook.learners_code import advice, explain, set_display_name
from keepfed.files import replace_file

_CELL = "the cell"
_ran: dict[str, str] = {}  # module name -> its cell in this kernel, the latest run last


def register(shell: Any, notebook: str) -> None:
    """Register the magic in `shell`. Each notebook has a separate folder for its files."""
    folder = scratch_folder() / f"nb{notebook}"

    def worker_module(line: str, cell: str) -> None:
        """Write this cell to a module that workers can import, and import it here."""
        name = line.strip()
        last, again = _ran.get(name) == cell and next(reversed(_ran)) == name, False
        # A repeated run keeps the latest module, so that existing objects stay valid.
        if not (last and name in sys.modules and (folder / f"{name}.py").exists()):
            again = name in _ran
            define(name, cell, folder=folder)
            _ran.pop(name, None)  # moves it to the end
            _ran[name] = cell
        module = sys.modules[name]
        shell.user_ns.update({k: v for k, v in vars(module).items() if not k.startswith("_")})
        print(_report(module, cell, again))

    shell.register_magic_function(worker_module, magic_kind="cell")


def define(name: str, cell: str, *, folder: Path, of: str = _CELL) -> ModuleType:
    """Write `cell`, the text `of` something, to `folder/NAME.py`, and import it.

    Raises:
        CourseError: If the name is not valid, or the cell does not compile or run.
    """
    path = folder / f"{name}.py"
    _check_name(name, path)
    if of != _CELL:
        set_display_name(path, of)
    # The first line replaces the line of the magic, so that line numbers match the cell.
    source = f"# %%worker_module {name}\n{cell}"
    try:
        compile(source, of, "exec")  # the path would show the line of the previous version
    except SyntaxError as error:
        line = (error.text or "").strip()
        raise CourseError(
            f"Line {error.lineno} of {of} is not valid Python, `{line}`: {error.msg}. "
            "Fix the line and run the cell again."
        ) from None
    _write(path, source)
    _put_on_path(folder)
    sys.modules.pop(name, None)
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except Exception as error:
        step = advice(error) or "Fix the line and run the cell again."
        what = "The cell" if of == _CELL else of
        raise CourseError(f"{what} stopped in {explain(error)}. {step}") from None


def _check_name(name: str, path: Path) -> None:
    if not name.isidentifier() or keyword.iskeyword(name):
        raise CourseError(
            f"{name!r} is not a valid module name. Write for example: %%worker_module my_dataset"
            if name
            else "The module needs a name. Write for example: %%worker_module my_dataset"
        )
    spec = None if name in sys.modules else importlib.util.find_spec(name)
    taken_by = getattr(sys.modules.get(name), "__file__", "") if spec is None else spec.origin
    if (spec or name in sys.modules) and taken_by != str(path):
        raise CourseError(f"Python already has a module {name!r}. Name this one my_{name}.")


def _write(path: Path, source: str) -> None:
    """Write the module with a time stamp that is newer than every earlier version's.

    Python uses a cached .pyc if the size and the time in whole seconds match, as they may after two
    quick edits of equal length. Increasing time stamps prevent this in every process.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    stamp = int(time.time())
    if path.exists():
        stamp = max(stamp, int(path.stat().st_mtime) + 1)
    replace_file(path, source)
    os.utime(path, (stamp, stamp))


def _put_on_path(folder: Path) -> None:
    # Workers inherit sys.path; subprocesses read PYTHONPATH.
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
        others = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *([others] if others else [])])


def _report(module: ModuleType, cell: str, again: bool) -> str:
    table = symtable.symtable(cell, module.__name__, "exec")
    assigned = [
        symbol.get_name()
        for symbol in table.get_symbols()
        if symbol.is_assigned() and not symbol.is_imported()
    ]
    # Names that a script assigns below `if __name__ == "__main__"` do not exist in the module.
    made = [name for name in assigned if name[0] != "_" and hasattr(module, name)]
    lines = [f"{module.__name__}.py defines {', '.join(made) or 'nothing'}."]
    if assigned and not made:
        lines = [f"{module.__name__}.py is a script. Importing it does nothing."]
    if again and any(inner.get_type() == "class" for inner in table.get_children()):
        lines.append(
            "Objects created earlier keep the old code. Run the cells that create them again."
        )
    if missing := sorted(_read_names(table) - {*vars(module), *assigned, *dir(builtins)}):
        lines.append(
            f"A worker will not know {', '.join(missing)}, because it is a new Python. Import or "
            "define in this cell everything that it uses."
        )
    return "\n".join(lines)


def _read_names(table: symtable.SymbolTable) -> set[str]:
    """Return the global names that the code of `table` and its nested scopes reads."""
    names = {s.get_name() for s in table.get_symbols() if s.is_global() and s.is_referenced()}
    return names.union(*map(_read_names, table.get_children()))
