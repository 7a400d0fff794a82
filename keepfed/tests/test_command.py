import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace

import pytest

import keepfed
from keepfed import command
from keepfed.errors import KeepfedError, required


def test_missing_package_is_named_as_pip_knows_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "keepfed.field_guide", None)
    with pytest.raises(ModuleNotFoundError):  # our own module, which pip cannot install
        command.main(["why", "text"])
    monkeypatch.setitem(sys.modules, "tomllib", None)
    monkeypatch.delitem(sys.modules, "keepfed.field_guide")
    monkeypatch.delitem(sys.modules, "keepfed.field_guide.entry", raising=False)
    assert command.main(["why", "text"]) == 1
    said = capsys.readouterr().err
    assert said == "keepfed: The package tomllib is not installed: run pip install tomllib.\n"
    for module, package in {"torch": "torch", "PIL": "pillow"}.items():
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(KeepfedError, match=f"{module} is .* run pip install {package}.$"):
            required(module)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has different pipes")
def test_closed_output_pipe_is_not_an_error() -> None:
    code = "from keepfed.command import main; raise SystemExit(main(['why', 'slow']))"
    reader, writer = os.pipe()
    os.close(reader)
    run = subprocess.run([sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (run.returncode, run.stderr) == (141, b"")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has a different shell")
def test_watched_program_keeps_its_exit_code_without_a_reader(tmp_path: Path) -> None:
    watch = "from keepfed.command import main; raise SystemExit(main(['watch', 'sh', '-c', '{}']))"
    for ends in (">&-", "| true"):
        shell = f'set -o pipefail; "$0" -c "$1" {ends}'
        program = watch.format("exit 3")
        run = subprocess.run(["bash", "-c", shell, sys.executable, program], cwd=tmp_path)
        assert run.returncode == 3, ends


def test_version_option_prints_the_package_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        command.main(["--version"])
    assert capsys.readouterr().out.strip() == f"keepfed {keepfed.__version__}"


def test_wrong_words_end_with_2_and_help_has_examples(capsys: pytest.CaptureFixture) -> None:
    for words in ("watch", "audit", "stage", "stage --remove", "watch --fail-above x", "nothing"):
        with pytest.raises(SystemExit, match="2"):
            sys.exit(command.main(words.split()))
        assert capsys.readouterr().err
    for name in "watch", "audit", "why", "stage":
        with pytest.raises(SystemExit, match="0"):
            command.main([name, "--help"])
        assert f"Examples:\n  keepfed {name} " in capsys.readouterr().out


def test_why_prints_json_and_on_any_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["why", "--json", "bus error"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["entries"][0]["name"] == "shm_full"
    assert found["entries"][0]["title"] in found["text"]
    assert command.main(["why", "--json", "RuntimeError: Read timed out"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["entries"], found["near"][:1]) == ([], ["connection_lost"])
    for encoding in "latin-1", "ascii", "cp437":
        with redirect_stdout(io.TextIOWrapper(io.BytesIO(), encoding)):
            assert command.main(["why", "bus error"]) == 0, encoding


def test_stage_copies_lists_and_removes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from keepfed.loaders.staging import stage_to_shm, staged_copies

    (tmp_path / "events.db").write_bytes(b"events")
    (tmp_path / "used").write_bytes(b"1")
    to, source = ["--to", str(tmp_path / "to")], str(tmp_path / "events.db")
    assert command.main(["stage", source, *to]) == 0
    assert "copied in" in capsys.readouterr().out
    assert command.main(["stage", source, *to, "--list"]) == 0
    again, listed = capsys.readouterr().out.splitlines()
    assert again.startswith("Staged ")
    assert listed.endswith(f"events.db: 6 B, an existing copy of {source}")
    used = stage_to_shm(tmp_path / "used", to=tmp_path / "to")
    assert command.main(["stage", "--remove", *to]) == 2
    asked = "2 staged, 7 B, for all projects. Name the one to remove, or add --all"
    assert asked in capsys.readouterr().err
    assert len(staged_copies(to=tmp_path / "to")) == 2
    assert command.main(["stage", "--remove", "/nope", *to]) == 1
    assert "No copy of /nope exists. `keepfed stage --list`" in capsys.readouterr().err
    assert command.main(["stage", str(tmp_path / "used"), *to, "--remove"]) == 0
    assert not used.path.exists()
    assert command.main(["stage", "--remove", "--all", *to, "--list"]) == 0
    removed = "Removed: 1 staged, 1 B.\nRemoved: 1 staged, 6 B.\nNothing is staged.\n"
    assert capsys.readouterr().out == removed
    assert command.main(["stage"]) == 2
    assert "The path is missing. Give the data to stage" in capsys.readouterr().err


def test_why_says_what_a_message_or_a_log_means_and_what_it_does_not_know(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["why", "RuntimeError: received 0 items", "of ancdata"]) == 0
    said = capsys.readouterr().out
    assert "What happened: Too many files are open" in said
    assert all(f"\n{part}" in said for part in ("Why: ", "Fix:\n  1. ", "More: "))
    log = SimpleNamespace(isatty=lambda: False, buffer=io.BytesIO(b"step 1\nquux \xff\n"))
    monkeypatch.setattr("sys.stdin", log)
    assert command.main(["why"]) == 1
    assert capsys.readouterr().out.startswith("Not known. The field guide has no entry for this")
    log.buffer = io.BytesIO(b"x\xff\nworker (pid 7) is killed by signal: Bus error\n")
    assert command.main(["why"]) == 0
    log.isatty = lambda: True
    assert command.main(["why"]) == 2
    assert "`keepfed why < log`" in capsys.readouterr().err
