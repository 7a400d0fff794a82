"""Copies in /dev/shm: whole or not there, made once, and gone when nobody needs them."""

import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

from keepfed.errors import KeepfedError
from keepfed.loaders.staging import stage as staging
from keepfed.loaders.staging import stage_to_shm, staged_copies
from keepfed.loaders.staging.stage import find_staging_dir
from tests.loaders.staging.staging_sources import Meddling, contents, left


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """Return a folder with files, one of them empty, and a folder in it."""
    folder = tmp_path / "shards"
    (folder / "train" / "more").mkdir(parents=True)
    for name in ("a.tar", "train/b.tar", "train/more/c.tar"):
        (folder / name).write_bytes(os.urandom(5000))
    (folder / "train" / "empty").touch()
    return folder


def test_copy_is_used_again_until_it_is_removed(source: Path, shm: Path) -> None:
    first = stage_to_shm(source, to=shm)
    assert (first.path.name, first.bytes, first.reused) == ("pulses.npy", 12_000_000, False)
    assert first.path.read_bytes() == source.read_bytes()
    second = stage_to_shm(source, to=shm)
    assert (second.reused, second.path) == (True, first.path)
    assert ("copied in" in str(first), "an existing copy" in str(second)) == (True, True)
    second.unstage()
    assert left(shm) == []
    first.unstage()  # which does nothing


@pytest.mark.skipif(os.name == "nt", reason="Windows lets few users make links, and has no modes")
def test_folder_copy_follows_links_and_is_private(shards: Path, shm: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "d.tar").write_bytes(b"d")
    plain = contents(shards)
    (shards / "linked").symlink_to(tmp_path / "elsewhere")
    staged = stage_to_shm(f"{shards}/", to=shm, progress=False)
    assert staged.path.name == "shards"
    assert contents(staged.path) == {**plain, "linked/d.tar": b"d"}
    assert stat.S_IMODE(find_staging_dir(shm).stat().st_mode) == 0o700


def test_changed_source_is_copied_again_beside_the_old_copy(shards: Path, shm: Path) -> None:
    old, before = stage_to_shm(shards, to=shm), contents(shards)
    (shards / "train" / "d.tar").write_bytes(b"d")
    new = stage_to_shm(shards, to=shm)
    assert not new.reused
    assert (contents(old.path), contents(new.path)) == (before, contents(shards))
    copies = staged_copies(shards, to=shm)
    assert {copy.path for copy in copies} == {old.path, new.path}
    for copy in copies:
        copy.unstage()
    assert left(shm) == []


def test_modified_copy_is_replaced(source: Path, shm: Path) -> None:
    for change in (lambda path: path.write_bytes(b"scribble"), lambda path: path.unlink()):
        change(stage_to_shm(source, to=shm).path)
        staged = stage_to_shm(source, to=shm)
        assert not staged.reused
        assert staged.path.read_bytes() == source.read_bytes()


def test_change_or_interrupt_during_the_copy_leaves_no_copy(shards: Path, shm: Path) -> None:
    last, changed = shards / "train/more/c.tar", "changed during the copy, and the copy was removed"
    for happens, message in (
        (lambda: (shards / "a.tar").write_bytes(bytes(5000)), changed),
        (lambda: last.write_bytes(last.read_bytes() + b"x"), changed),
        (Mock(side_effect=KeyboardInterrupt), None),
    ):
        fs = Meddling(lambda path, happens=happens: path.endswith("c.tar") and happens())
        with pytest.raises((KeepfedError, KeyboardInterrupt), match=message):
            stage_to_shm(shards, fs=fs, to=shm)
        assert left(shm) == []


def test_two_storages_with_equal_names_have_separate_copies(tmp_path: Path, shm: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_bytes(name.encode())
        os.utime(tmp_path / name / "x", (0, 0))
        storage = fsspec.filesystem("dir", path=tmp_path / name, fs=LocalFileSystem())
        staged = stage_to_shm("x", fs=storage, to=shm)
        assert staged.path.read_bytes() == name.encode()
        assert stage_to_shm("x", fs=storage, to=shm).reused


def test_url_is_a_valid_source(shm: Path) -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe({"/staging-test/one": b"1", "/staging-test/in/two": b"22"})
    try:
        folder = stage_to_shm("memory://staging-test", to=shm)
        assert contents(folder.path) == {"one": b"1", "in/two": b"22"}
        assert stage_to_shm("memory://staging-test/in/two", to=shm).path.read_bytes() == b"22"
    finally:
        memory.rm("/staging-test", recursive=True)


def test_storage_error_names_the_next_step(shm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_credentials = type("NoCredentialsError", (Exception,), {})("Unable to locate credentials")
    info = Mock(side_effect=no_credentials)
    monkeypatch.setattr(type(fsspec.filesystem("memory")), "info", info)
    said = r"read memory:///x: Unable to .* \(NoCredentialsError\)\. Check the network"
    with pytest.raises(KeepfedError, match=said):
        stage_to_shm("memory://x", to=shm)


@pytest.mark.skipif(os.name == "nt", reason="Windows lets few users make links, and has no pipes")
def test_source_that_cannot_be_copied_gets_one_sentence_and_leaves_nothing(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/gone").symlink_to("nothing")
    (tmp_path / ".seal.json").write_text("{}")
    to = str(tmp_path / "to")
    for source, target, said in (
        ("/nowhere/x", to, "/nowhere/x: it does not exist. Check the path"),
        ("http://127.0.0.1:9/x", to, "(http): it does not exist. Check the path"),
        ("nothing://x", to, "nothing://x: Protocol not known"),
        ("empty", to, "empty: it is empty. Use the path that contains the data"),
        ("file:///dev/zero", to, "/dev/zero: it is a device, a pipe or a socket"),
        ("broken", to, "gone: it is a link to a missing file. Restore the file, or"),
        (".seal.json", to, "Staging uses the name .seal.json itself. Rename"),
        (str(shards), "http://here/to", "http://here/to is not on this machine. To fix this"),
        (str(shards), f"{shards}/to", "so the copy would contain itself. To fix this, choose"),
    ):
        before = sorted(shards.rglob("*"))
        with pytest.raises(KeepfedError) as refused:
            stage_to_shm(source, to=target, progress=False)
        assert said in str(refused.value), (source, str(refused.value))
        assert sorted(shards.rglob("*")) == before
        assert not (tmp_path / "http:").exists()
        assert not Path(to).exists() or left(Path(to)) == []


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="copies are not in memory here")
def test_limit_of_the_container_counts(
    source: Path, shm: Path, emulate_cgroup: Callable[..., None]
) -> None:
    emulate_cgroup({"memory.max": "50000000", "memory.current": "44000000"})
    with pytest.raises(KeepfedError, match=r"container has 6.0 MB free, and 5.0 MB must stay free"):
        stage_to_shm(source, to=shm)
    assert left(shm) == []


def test_nearly_full_disk_takes_a_small_file(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nearly_full = SimpleNamespace(total=250_000_000_000, free=2_000_000_000)
    monkeypatch.setattr("shutil.disk_usage", lambda _: nearly_full)
    stage_to_shm(source, to=tmp_path / "disk", progress=False).unstage()
    nearly_full.free = 1_000_000_000
    with pytest.raises(KeepfedError, match=r"has 1.00 GB free, and 1.00 GB must stay free"):
        stage_to_shm(source, to=tmp_path / "disk")


def test_without_shm_the_copy_goes_to_the_temporary_folder(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(staging, "SHM", tmp_path / "nowhere")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert stage_to_shm(source, progress=False).path.is_relative_to(tmp_path)
    assert "This system has no /dev/shm, so the copy is stored on disk" in capsys.readouterr().out


@pytest.mark.skipif(os.name == "nt", reason="the temp folder of Windows is private")
def test_folder_that_is_a_file_or_link_is_refused(source: Path, shm: Path, tmp_path: Path) -> None:
    (tmp_path / "trap").mkdir()
    (shm / f"keepfed-{os.getuid()}").symlink_to(tmp_path / "trap")
    for to, problem in (source, "is a file, not a folder"), (shm, "belongs to another user"):
        with pytest.raises(KeepfedError, match=rf"{problem}\. To fix this, choose another"):
            stage_to_shm(source, to=to)
    assert list((tmp_path / "trap").iterdir()) == []
