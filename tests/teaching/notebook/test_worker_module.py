"""`%%worker_module`: what it writes, imports, prints and rejects."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from course_utils.teaching.notebook import worker_module
from course_utils.teaching.notebook.worker_module import define, register
from keepfed.errors import KeepfedError
from tests.fixtures import run_python


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
    """The magic as IPython calls it; its names go to `magic.names`."""
    magic = SimpleNamespace(names={})

    def keep(function: Any, magic_kind: str) -> None:
        magic.run = function

    register(SimpleNamespace(user_ns=magic.names, register_magic_function=keep), "90")
    return magic


def test_names_of_the_cell_reach_the_notebook(magic: Any, capsys: pytest.CaptureFixture) -> None:
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
    assert missing.startswith("A worker will not know np, torch, because it is a new Python")


def test_changed_cell_warns_about_old_objects(magic: Any, capsys: pytest.CaptureFixture) -> None:
    said = "Objects created earlier keep the old code. Run the cells that create them again."
    cells = [f"class Events: n = {n}" for n in (1, 1, 2, 2)]
    for cell, is_new in zip(cells, (False, False, True, False), strict=True):
        before = magic.names.get("Events")
        magic.run("mine", cell)
        assert (said in capsys.readouterr().out) == is_new
        assert (magic.names["Events"] is before) == (before is not None and not is_new)


def test_cell_runs_again_after_another_one(magic: Any, capsys: pytest.CaptureFixture[str]) -> None:
    magic.run("mine_base", "x = 1")
    magic.run("mine_user", "from mine_base import x")
    magic.run("mine_base", "x = 2\nclass Kind: pass")
    assert "keep the old code" in capsys.readouterr().out
    with pytest.raises(KeepfedError):
        magic.run("mine_base", "x = 1 / 0")
    magic.run("mine_base", "x = 2\ndef function(): return x")
    assert "keep the old code" not in capsys.readouterr().out  # no object of the old version exists
    magic.run("mine_user", "from mine_base import x")
    assert magic.names["x"] == 2


def test_equal_length_edits_within_a_second_are_imported(folder: Path) -> None:
    """Includes the case that a worker wrote a .pyc between the edits."""
    with pytest.raises(KeepfedError):
        define("mine", "1 / 0", folder=folder)  # fixed by the next version
    first = b""
    cached = Path(importlib.util.cache_from_source(str(folder / "mine.py")))
    for number in range(5):
        module = define("mine", f"x = {number}\n\ndef f():\n    ...", folder=folder)
        assert module.x == number
        first = first or cached.read_bytes()
        cached.write_bytes(first)
    # Line 1 of the cell is the magic itself, which IPython removes.
    assert module.f.__code__.co_firstlineno == 4
    assert run_python("-c", "import mine; print(mine.x)").stdout == "4\n"


def test_invalid_cell_or_name_is_rejected_in_one_sentence(folder: Path) -> None:
    for name, cell, sentence in (
        ("", "", "The module needs a name. Write for example: %%worker_module my_dataset"),
        ("my dataset", "", "'my dataset' is not a valid module name"),
        ("json", "", "Python already has a module 'json'. Name this one my_json."),
        ("colorsys", "", "Python already has a module 'colorsys'"),
        ("mine", "x = 1\nx = = 2", "Line 3 of the cell is not valid Python, `x = = 2`: inv"),
        ("mine", "x = np.zeros(3)", "NameError: name 'np' is not defined. Check the spelling. A w"),
    ):
        with pytest.raises(KeepfedError) as caught:
            define(name, cell, folder=folder)
        assert sentence in str(caught.value)
        assert "\n" not in str(caught.value)
