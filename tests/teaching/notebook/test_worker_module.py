"""`%%worker_module`: what it writes, imports, prints and refuses."""

import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from course_utils.teaching.notebook import worker_module
from course_utils.teaching.notebook.worker_module import define, register
from keepfed.errors import KeepfedError


@pytest.fixture(autouse=True)
def folder(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setattr(worker_module, "_ran", {})
    known = set(sys.modules)
    yield scratch / "nb90"
    for name in set(sys.modules) - known:
        if name.startswith("mine"):
            del sys.modules[name]


@pytest.fixture
def magic() -> Any:
    """The magic as IPython would call it; its names land in `magic.names`."""
    registered: list[Any] = []
    names: dict[str, Any] = {}
    shell = SimpleNamespace(
        user_ns=names,
        register_magic_function=lambda function, magic_kind: registered.append(function),
    )
    register(shell, "90")
    return SimpleNamespace(run=registered[0], names=names)


def test_names_of_the_cell_become_names_of_the_notebook_and_missing_ones_are_listed(
    magic: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    magic.run("mine", "import math\n\ndef area(r):\n    return math.pi * r * r\n\n_hidden = 1\n")
    assert magic.names["area"](1) == magic.names["math"].pi
    assert "_hidden" not in magic.names
    capsys.readouterr()
    magic.run(
        "mine",
        "import os\nSIZE = 3\nclass A:\n    def f(self, x):\n        y = [np.sin(i) for i in x]\n"
        "        return torch.tensor(y), os.getpid(), len(x), A, __name__\n",
    )
    made, *_, missing = capsys.readouterr().out.splitlines()
    assert made == "mine.py defines SIZE, A."
    assert missing.startswith("A worker will not know np, torch: it is a fresh Python")


def test_a_script_is_called_one_and_what_it_would_assign_is_not_missing(
    magic: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    magic.run("mine", 'import sys\nif __name__ == "__main__":\n    a = sys.argv\n    print(a)\n')
    said = capsys.readouterr().out
    assert said == "mine.py is a script. Importing it does nothing.\n"


def test_a_changed_cell_says_that_old_objects_stay_old(
    magic: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "Objects created earlier keep the old code. Run the cells that create them again."
    cells = [f"class Events: n = {n}" for n in (1, 1, 2, 2)]
    for cell, is_new in zip(cells, (False, False, True, False), strict=True):
        before = magic.names.get("Events")
        magic.run("mine", cell)
        assert (said in capsys.readouterr().out) == is_new
        assert (magic.names["Events"] is before) == (before is not None and not is_new)


@pytest.mark.parametrize("between", ["from mine_base import x", "x = 1 / 0"])
def test_a_cell_that_another_one_came_after_is_run_again(
    magic: Any, capsys: pytest.CaptureFixture[str], between: str
) -> None:
    magic.run("mine_base", "x = 1")
    if "import" in between:
        magic.run("mine_user", between)
    else:
        with pytest.raises(KeepfedError):
            magic.run("mine_base", between)
    magic.run("mine_base", "x = 2\nclass Kind: pass")
    assert "keep the old code" in capsys.readouterr().out
    magic.run("mine_base", "x = 2\ndef function(): return x")
    assert "keep the old code" not in capsys.readouterr().out  # nothing was made of it
    magic.run("mine_user", "from mine_base import x")
    assert magic.names["x"] == 2


def test_edits_of_equal_length_within_a_second_are_seen_with_the_lines_of_the_cell(
    folder: Path,
) -> None:
    """Also where a worker wrote a cached version meanwhile."""
    with pytest.raises(KeepfedError):
        define("mine", "1 / 0", folder=folder)  # mended by the next one
    first = b""
    cached = Path(importlib.util.cache_from_source(str(folder / "mine.py")))
    for number in range(5):
        module = define("mine", f"x = {number}\n\ndef f():\n    ...", folder=folder)
        assert module.x == number
        first = first or cached.read_bytes()
        cached.write_bytes(first)
    # line 1 of the cell is the magic itself, which IPython does not pass on
    assert module.f.__code__.co_firstlineno == 4
    program = [sys.executable, "-c", "import mine; print(mine.x)"]
    assert subprocess.run(program, capture_output=True, text=True, check=True).stdout == "4\n"


def test_of_a_new_version_that_is_not_python_the_new_line_is_told(folder: Path) -> None:
    define("mine", "x = (1 + 1) * 2", folder=folder)
    with pytest.raises(KeepfedError, match=re.escape("`x = (1 + 1 * 2`: '(' was never closed")):
        define("mine", "x = (1 + 1 * 2", folder=folder)


@pytest.mark.parametrize(
    ("name", "cell", "sentence"),
    [
        ("", "", "The module needs a name. Write for example: %%worker_module my_dataset"),
        ("my dataset", "", "'my dataset' is not a valid module name"),
        ("json", "", "Python already has a module 'json'. Name this one my_json."),
        ("colorsys", "", "Python already has a module 'colorsys'"),
        ("mine", "x = 1\nx = = 2", "Line 3 of the cell is not valid Python, `x = = 2`: inv"),
        (
            "mine",
            "x = np.zeros(3)",
            "NameError: name 'np' is not defined. Check the spelling. A worker",
        ),
    ],
)
def test_what_cannot_work_is_refused_in_a_sentence(
    folder: Path, name: str, cell: str, sentence: str
) -> None:
    with pytest.raises(KeepfedError) as caught:
        define(name, cell, folder=folder)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
