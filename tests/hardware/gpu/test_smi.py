import subprocess

import pytest

from course_utils.hardware.gpu import PRESETS, smi
from course_utils.hardware.gpu.smi import SAMPLE_NS, Kernel, Smi, emulated_smi, nvidia_smi
from tests.hardware.fake_device import fake_device, megabytes

RTX = PRESETS["RTX 3090"]


def look(kernels, seconds):
    return emulated_smi(RTX, kernels, now_ns=round(seconds * SAMPLE_NS), memory_used=0)


def kernel(start_s, end_s, occupancy=1.0):
    return Kernel(round(start_s * SAMPLE_NS), round(end_s * SAMPLE_NS), occupancy)


def test_a_kernel_on_one_multiprocessor_counts_in_full_but_for_the_power():
    full, empty = look([kernel(0, 10)], 5), look([kernel(0, 10, occupancy=1 / 82)], 5)
    assert full.gpu_util == empty.gpu_util == 100
    assert full.idle == empty.idle == 0
    assert empty.sm_active == pytest.approx(1 / 82)
    assert full.power_w == RTX.max_w
    assert empty.power_w == pytest.approx(RTX.idle_w, rel=0.25)


def test_it_sees_only_the_last_sample_period():
    kernels = [kernel(0, 0.1), kernel(9, 10)]
    assert look(kernels, 10).gpu_util == 100
    assert look(kernels, 10).idle == pytest.approx(0.89)
    assert look(kernels, 11).gpu_util == 0


def test_a_kernel_still_running_counts_up_to_now():
    assert look([kernel(0.75, 100)], 1).gpu_util == 25


def test_nothing_launched_is_no_idle_share():
    panel = look([], 1)
    assert panel.idle is None
    assert panel.gpu_util == 0
    assert "idle           not available\n" in str(panel)


def test_the_device_shows_its_memory_and_what_is_past():
    gpu, clock = fake_device(step_ms=1000)
    gpu.step(batch := gpu.upload(megabytes(4)), occupancy=0.05).item()
    panel = gpu.smi()
    assert (panel.gpu_util, panel.memory_used) == (100, batch.nbytes)
    assert panel.sm_active == pytest.approx(0.05)
    clock.work(5000)
    assert gpu.smi().gpu_util == 0


def test_the_panel_shows_both_sides():
    text = str(look([kernel(0, 10, occupancy=0.05)], 5))
    assert "emulated RTX 3090" in text
    assert "GPU-Util       100 %" in text
    assert "SMs at work      5 %" in text
    # What a notebook shows in a window of 900 pixels, beside its file browser.
    assert max(map(len, text.splitlines())) <= 58


def answer(monkeypatch, text):
    def run(*args, **kwargs):
        if text is None:
            raise FileNotFoundError
        return subprocess.CompletedProcess([], 0, stdout=text)

    monkeypatch.setattr(smi.subprocess, "run", run)
    return nvidia_smi("NVIDIA H200", "GPU-1")


def test_the_real_one_is_read(monkeypatch):
    panel = answer(monkeypatch, "37, 210.55, 700.00, 1024, 143771\n")
    assert (panel.gpu_util, panel.power_w, panel.max_power_w) == (37, 210.55, 700)
    assert panel.memory_used == 2**30
    assert panel.idle is None


def test_what_the_real_one_does_not_say_is_not_available(monkeypatch):
    panel = answer(monkeypatch, "[N/A], [N/A], 350.00, 1, 2\n")
    assert panel.gpu_util is None
    assert "Pwr:Usage/Cap  not available" in str(panel)
    assert answer(monkeypatch, None) == Smi(name="NVIDIA H200")  # the program is not there
