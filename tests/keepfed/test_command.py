from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import course_utils
from keepfed import command


def test_a_package_that_is_missing_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "keepfed.field_guide", None)
    with pytest.raises(ModuleNotFoundError):  # our own module: no installation brings it
        command.main(["why", "text"])
    monkeypatch.setitem(sys.modules, "tomllib", None)
    monkeypatch.delitem(sys.modules, "keepfed.field_guide")
    assert command.main(["why", "text"]) == 1
    said = capsys.readouterr().err
    assert said == 'keepfed: The package tomllib is not installed: run pip install "keepfed".\n'


@pytest.mark.slow
def test_a_name_of_the_course_says_which_extra_brings_it() -> None:
    code = "import sys; sys.modules['IPython'] = None; import course_utils; course_utils.ready"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    said = 'The package IPython is not installed: run pip install "keepfed[course]".'
    assert run.stderr.strip().endswith(f"KeepfedError: {said}")


@pytest.mark.skipif(sys.platform == "win32", reason="it has other pipes")
def test_a_reader_that_takes_one_line_and_goes_is_no_error() -> None:
    code = "from keepfed.command import main; raise SystemExit(main(['why', 'slow']))"
    reader, writer = os.pipe()
    os.close(reader)
    run = subprocess.run([sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (run.returncode, run.stderr) == (141, b"")


@pytest.mark.skipif(sys.platform == "win32", reason="it has another shell")
@pytest.mark.parametrize("ends", [">&-", "| true"])
def test_a_watched_program_keeps_its_exit_code_where_nobody_reads(
    ends: str, tmp_path: Path
) -> None:
    program = (
        "from keepfed.command import main; raise SystemExit(main(['watch', 'sh', '-c', 'exit 3']))"
    )
    shell = f'set -o pipefail; "$0" -c "$1" {ends}'
    run = subprocess.run(["bash", "-c", shell, sys.executable, program], cwd=tmp_path)
    assert run.returncode == 3


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        command.main(["--version"])
    assert capsys.readouterr().out.strip() == course_utils.__version__
