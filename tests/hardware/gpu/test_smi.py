import subprocess

import pytest

from course_utils.hardware.gpu import PRESETS, smi
from course_utils.hardware.gpu.emulated import Kernel, emulated_smi
from course_utils.hardware.gpu.smi import SAMPLE_NS, Smi, nvidia_smi

RTX = PRESETS["RTX 3090"]


def look(seconds, *kernels):
    return emulated_smi(RTX, kernels, now_ns=round(seconds * SAMPLE_NS), memory_used=0)


def kernel(start_s, end_s, occupancy=1.0):
    return Kernel(round(start_s * SAMPLE_NS), round(end_s * SAMPLE_NS), occupancy)


def test_kernel_on_one_multiprocessor_counts_fully_except_for_power():
    full, empty = look(5, kernel(0, 10)), look(5, kernel(0, 10, occupancy=1 / 82))
    assert full.gpu_util == empty.gpu_util == 100
    assert full.idle == empty.idle == 0
    assert empty.sm_active == pytest.approx(1 / 82)
    assert full.power_w == RTX.max_w
    assert RTX.awake_w < empty.power_w < 0.33 * RTX.max_w
    assert (full.perf, empty.perf, look(20, kernel(0, 10)).perf) == ("P2", "P2", "P8")
    assert look(20, kernel(0, 10)).power_w == RTX.idle_w


def test_only_the_last_sample_period_counts_except_for_idle_share():
    kernels = [kernel(0, 0.1), kernel(9, 10)]
    assert look(10, *kernels).gpu_util == 100
    assert look(10, *kernels).idle == pytest.approx(0.89)
    assert look(11, *kernels).gpu_util == 0
    assert look(1, kernel(0.75, 100)).gpu_util == 25
    nothing = look(1)
    assert (nothing.gpu_util, nothing.idle) == (0, None)
    assert "idle           not available\n" in str(nothing)


def test_real_output_is_parsed_and_missing_figures_are_none(monkeypatch, tmp_path):
    def answer(text):
        done = subprocess.CompletedProcess([], 0, stdout=text)
        monkeypatch.setattr(smi.subprocess, "run", lambda *_, **__: done)
        return nvidia_smi("NVIDIA H200", "GPU-1")

    panel = answer("P0, 37, 210.55, 700.00, 1024, 143771\n")
    assert (panel.perf, panel.gpu_util, panel.power_w) == ("P0", 37, 210.55)
    assert (panel.memory_used, panel.idle) == (2**30, None)
    panel = answer("[N/A], [N/A], [N/A], 350.00, 1, 2\n")
    assert panel.gpu_util is panel.perf is None
    assert "Pwr:Usage/Cap  not available" in str(panel)
    monkeypatch.undo()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert nvidia_smi("NVIDIA H200", "GPU-1") == Smi(name="NVIDIA H200")
