"""Starting workers from a server that has loaded their modules."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from course_utils.hardware.machine import use_start_method

linux = pytest.mark.skipif(sys.platform == "win32", reason="no forkserver there")


def run(folder: Path, program: str) -> Any:
    """Run a program in a process that has no server yet; return what it prints as JSON."""
    script = folder / "program.py"
    script.write_text(
        "import json, sys, warnings\nimport multiprocessing\n"
        "from course_utils.hardware.machine.starting import use_start_method\n"
        "def modules(): return sorted({'torch', 'wave'} & set(sys.modules))\n"
        'if __name__ == "__main__":\n    ' + program.replace("\n", "\n    ")
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@linux
@pytest.mark.slow
def test_a_new_process_has_the_modules_that_the_server_loaded(tmp_path: Path) -> None:
    program = """method = use_start_method(["wave"])
use_start_method(["wave"])  # again, as when a cell runs twice
with multiprocessing.Pool(1) as pool:
    print(json.dumps([method, pool.apply(modules)]))
"""
    assert run(tmp_path, program) == ["forkserver", ["wave"]]


@linux
@pytest.mark.slow
def test_too_late_is_said_with_the_modules_and_what_to_do(tmp_path: Path) -> None:
    program = """use_start_method(["json"])
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    use_start_method(["json", "wave"])
print(json.dumps([str(warning.message) for warning in told]))
"""
    (said,) = run(tmp_path, program)
    assert said.startswith("Too late to preload wave: the server that starts workers runs already")
    assert "Restart Python" in said


def test_a_module_that_does_not_exist_is_named() -> None:
    for name in ("tourch", "torch.nothing", "nothing.at.all"):
        with pytest.raises(ValueError, match=f"no module '{name}' to preload"):
            use_start_method(["numpy", name])
