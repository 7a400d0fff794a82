import shutil
from pathlib import Path

import pytest

from data_scripts import files, make_events
from data_scripts.convert_events import add_formats, main


def test_missing_truncated_and_corrupted_formats_are_written_again(
    tmp_path: Path, events_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(events_folder, tmp_path / "events"))
    (folder / "events.h5").unlink()
    (folder / "npz/000/000300.npz").write_bytes(b"")
    add_formats(folder, ["npz", "hdf5", "parquet"])
    assert "pulses.parquet: already exists" in capsys.readouterr().out
    for name in (files.CHECKSUMS, files.MANIFEST):
        assert (folder / name).read_bytes() == (events_folder / name).read_bytes()
    assert files.corrupted(folder) == []
    for name in ("events.h5", "npz/000/000300.npz"):
        content = bytearray((folder / name).read_bytes())
        content[-1] ^= 1
        (folder / name).write_bytes(content)
    assert make_events.main(["--check", "--size", "S", "--out", str(folder)]) == 1
    assert capsys.readouterr().err.endswith(
        "(events.h5, npz/000/000300.npz). Create them again with `python -m data_scripts."
        f"make_events --size S --seed 1 --out {folder} --force`.\n"
    )
    assert main([str(tmp_path / "nothing"), "--to", "npz"]) == 1
    assert capsys.readouterr().err.endswith("Run make_events first.\n")
    pulses = folder / "npy/pulses.npy"
    pulses.write_bytes(pulses.read_bytes()[:-1] + b"x")
    assert main([str(folder), "--to", "sqlite"]) == 1
    assert "npy/pulses.npy" in capsys.readouterr().err
    assert not (folder / "events.db").exists()
