import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from filelock import FileLock, Timeout

from data_scripts import files
from data_scripts.make_events import SCRIPT
from tests.fixtures import run_python


def fill(folder: Path) -> files.Facts:
    (folder / "sub").mkdir()
    (folder / "sub/x.bin").write_bytes(b"12345")
    return {"count": 1}


FACTS = {"data": "things", "size": "S", "seed": 1}


def make(folder: Path) -> Path:
    files.make_folder(folder, fill, facts=FACTS, room=1)
    return folder


@pytest.fixture
def things(tmp_path: Path) -> Path:
    return make(tmp_path / "things")


def test_manifest_has_facts_sizes_and_checksums_also_of_an_added_entry(things: Path) -> None:
    assert files.read_manifest(things) == {**FACTS, "count": 1, "bytes": 5, "sizes": {"sub": 5}}
    assert (things / files.CHECKSUMS).read_text() == (
        "5994471abb01112afcc18159f6cc74b4f511b99806da59b3caf5a9c173cacfc5  sub/x.bin\n"
    )
    (things / ".more.unfinished").write_text("of a killed run")
    (things / "more").write_text("of a run that was killed before it sealed")
    files.add_entry(things, "more", lambda path: path.write_text("abc"), room=1)
    assert (files.read_manifest(things) or {})["sizes"] == {"more": 3, "sub": 5}
    assert files.corrupted(things) == []
    assert not (things / ".more.unfinished").exists()
    for content in ("", "{", "[]", "{}", "[" * 10**5):
        (things / files.MANIFEST).write_text(content)
        assert files.read_manifest(things) is None


def test_leftovers_go_and_moved_data_return(things: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    things.rename(things.with_name(".things.former"))
    (things.parent / ".things.unfinished/half").mkdir(parents=True)
    with files.locked(things):
        assert files.corrupted(things) == []
    (things.parent / ".things.former").mkdir()
    with files.locked(things):
        make(things)
    assert sorted(path.name for path in things.parent.iterdir()) == [".things.lock", "things"]
    rename = Path.rename

    def in_use(path: Path, target: Path) -> Path:
        if path.name == ".things.unfinished":
            raise PermissionError(13, "in use", str(path))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", in_use)
    with pytest.raises(PermissionError):
        make(things)
    assert files.corrupted(things) == []
    assert sorted(path.name for path in things.parent.iterdir()) == [".things.lock", "things"]


def test_one_process_waits_for_another(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib\n"
        "from data_scripts import files\n"
        "with files.locked(pathlib.Path(sys.argv[1])):\n"
        "    print('mine', flush=True)\n"
        "    sys.stdin.readline()\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "things")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as first:
        assert first.stdout.readline() == "mine\n"
        with subprocess.Popen(command, **pipes) as second:
            assert "Waiting for it" in second.stdout.readline()
            first.kill()  # the system releases a killed process's lock
            first.wait()
            assert second.stdout.readline() == "mine\n"
            with pytest.raises(Timeout):
                FileLock(tmp_path / ".things.lock").acquire(timeout=0)
            second.communicate("\n")
        first.communicate()


AS_NOBODY = """
import os, sys
from data_scripts.make_events import main
os.geteuid() or os.setuid(65534)  # root may write everything
sys.exit(main(["--size", "S", "--out", sys.argv[1]]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other permissions")
@pytest.mark.slow
def test_data_of_another_user_are_used_without_a_lock() -> None:
    with tempfile.TemporaryDirectory() as made:  # other users may enter it, unlike `tmp_path`
        folder = Path(made, "data", "events-S")
        folder.mkdir(parents=True)
        facts = {"data": "events", "version": SCRIPT.version, "size": "S", "seed": 1}
        files.seal(folder, facts)
        for path, mode in ((Path(made), 0o755), (folder.parent, 0o555)):
            path.chmod(mode)
        ran = run_python("-c", AS_NOBODY, folder)
        assert (ran.stdout, ran.stderr) == (f"{folder}: 2,000 events, already exists.\n", "")
        assert list(folder.parent.iterdir()) == [folder]
