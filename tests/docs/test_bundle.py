"""The parts of a bundle: its wheels for other systems, its README and its install scripts."""

import subprocess
import zipfile
from pathlib import Path

import pytest

from course_utils.paths import REPO
from docs import bundle
from docs.bundle import SYSTEMS, download, pins_for
from docs.install import requirements

LOCK = """\
pure==1.0
native==1.0
appnope==1.0 ; sys_platform == 'darwin'
colorama==1.0 ; os_name == 'nt'
old==1.0 ; python_full_version < '3.11.5'
"""
TAGS = {
    "linux": "cp312-cp312-manylinux_2_24_x86_64",
    "windows": "cp312-cp312-win_amd64",
    "macos": "cp312-cp312-macosx_11_0_arm64",
}


def test_pins_follow_markers_of_the_other_system() -> None:
    everywhere = ["pure==1.0", "native==1.0"]
    assert pins_for(LOCK, "linux", "3.11.4") == [*everywhere, "old==1.0"]
    assert pins_for(LOCK, "macos", "3.11.5") == [*everywhere, "appnope==1.0"]
    assert pins_for(LOCK, "windows", "3.12.0") == [*everywhere, "colorama==1.0"]


def test_course_lock_contains_torch_for_each_system() -> None:
    for system in SYSTEMS:
        lock = (REPO / "requirements.lock").read_text("utf-8")
        pins = pins_for(requirements(lock, cpu=True), system, "3.12.0")
        assert any(pin.startswith("torch==") for pin in pins), system
        assert not any(pin.startswith(("nvidia", "cuda", "triton", "pytest")) for pin in pins), (
            system
        )


@pytest.mark.full
def test_wheelhouse_serves_other_systems_and_all_patch_releases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop, folder = tmp_path / "shop", tmp_path / "wheelhouse"
    shop.mkdir()
    for name, tag in [("pure", "py3-none-any"), *(("native", tag) for tag in TAGS.values())]:
        _wheel(shop, f"{name}-1.0", tag)
    _wheel(shop, "patched-1.0", "py3-none-any")
    _wheel(shop, "patched-2.0", "py3-none-any", needs="Requires-Python: >=3.12.5\n")
    marker = "python_full_version {} '3.12.5'"
    patched = f"patched==1.0 ; {marker.format('<')}\npatched==2.0 ; {marker.format('>=')}\n"
    (tmp_path / "requirements.lock").write_text(f"pure==1.0\nnative==1.0\n{patched}")
    (tmp_path / "pyproject.toml").write_text("build-system.requires = []\n")
    monkeypatch.setattr(bundle, "REPO", tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shop))
    bundle._wheels(folder, SYSTEMS, "3.12")
    (folder / "requirements.txt").unlink()
    assert sorted(path.name for path in folder.iterdir()) == sorted(p.name for p in shop.iterdir())
    command = download(folder, ["native==1.0"], "windows", "3.13.0")
    assert subprocess.run(command, capture_output=True).returncode, "there is no such wheel"


def _wheel(folder: Path, release: str, tag: str, needs: str = "") -> None:
    about, (name, _, version) = f"{release}.dist-info", release.partition("-")
    head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}"
    with zipfile.ZipFile(folder / f"{release}-{tag}.whl", "w") as wheel:
        wheel.writestr(f"{about}/METADATA", head)
        wheel.writestr(f"{about}/WHEEL", f"Wheel-Version: 1.0\nTag: {tag}\n")
        wheel.writestr(f"{about}/RECORD", "")
