from pathlib import Path
from types import SimpleNamespace

import pytest

from docs import install
from docs.install import cpu_builds, requirements

LOCK = """\
# tested
numpy==2.4
nvidia-cublas==13.4 ; sys_platform == 'linux'
cuda-bindings==13.5
torch==2.15.0
torchvision==0.29.2
triton==3.9.0
"""


def test_cpu_build_needs_no_cuda_packages() -> None:
    assert cpu_builds(LOCK) == ["torch==2.15.0+cpu", "torchvision==0.29.2+cpu"]
    pins = ["numpy==2.4", "torch==2.15.0", "torchvision==0.29.2"]
    assert requirements(LOCK, cpu=True).split() == pins
    assert requirements(LOCK, cpu=False).count("\n") == LOCK.count("\n") - 1


def test_machine_without_driver_gets_no_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install.shutil, "which", lambda name: driver or None)
    monkeypatch.setattr(install.Path, "exists", lambda path: False)
    for requested, driver, cpu in ((None, "", 1), (None, "/smi", 0), ("1", "", 0), ("0", "x", 1)):
        monkeypatch.delenv("CUDA", raising=False)
        if requested is not None:
            monkeypatch.setenv("CUDA", requested)
        for platform in "linux", "darwin":
            monkeypatch.setattr(install.sys, "platform", platform)
            assert install.wants_cpu() == (cpu and platform == "linux"), (requested, driver)


def test_index_is_tried_once_and_the_size_of_cuda_is_told_before_it_is_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    def pip(*arguments: str, count: int = 0) -> int:
        nonlocal installed
        if install.INDEX in arguments:
            seen.append("index")
            installed = "2.15.0+cpu" if index == "answers" else ""
            return index != "answers"
        pins = Path(arguments[-1]).read_text("utf-8")
        seen.append("with CUDA" if "nvidia-cublas" in pins else "without CUDA")
        return 0

    def let_stop() -> None:
        assert "with CUDA: 3.3 GB to download, 6.9 GB on disk." in capsys.readouterr().out
        seen.append("announced")
        if "stops" in index:
            raise KeyboardInterrupt

    lock = tmp_path / "lock"
    lock.write_text(LOCK)
    monkeypatch.setattr(install, "wants_cpu", lambda: True)
    monkeypatch.setattr(install, "installed_torch", lambda: installed)
    monkeypatch.setattr(install, "_pip", pip)
    monkeypatch.setattr(install, "_let_stop", let_stop)
    for before, index, calls, code in (
        ("", "answers", ["index", "without CUDA"], 0),
        ("", "is silent", ["index", "announced", "with CUDA"], 0),
        ("", "is silent, and the user stops", ["index", "announced"], 130),
        ("2.15.0", "answers", ["with CUDA"], 0),  # a build with CUDA is installed and stays
        ("2.15.0+cpu", "answers", ["without CUDA"], 0),
    ):
        seen, installed = list[str](), before
        assert install.main([str(lock)]) == code, index
        assert seen == calls


def test_full_disk_stops_before_downloads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "lock").write_text(LOCK)
    monkeypatch.setattr(install, "installed_torch", lambda: "")
    monkeypatch.setattr(install, "_pip", lambda *_: pytest.fail("it began"))
    monkeypatch.setattr(install.shutil, "disk_usage", lambda _: SimpleNamespace(free=1.5e9))
    with pytest.raises(SystemExit, match=r"Only 1\.5 GB are free"):
        install.main([str(tmp_path / "lock")])
