"""The checks hold on the GPU, if there is one, and on the emulated device: so they are sound."""

import json

import pytest
import run
import torch
from gpu_checks import CHECKS
from gpu_loops import LOOPS, compare, run_loop

from course_utils.hardware.gpu import get_accelerator, timed_accelerator
from course_utils.measure.exchange.chrome import load_chrome


@pytest.fixture(scope="module")
def gpu():
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return get_accelerator("H200", step_ms=20, emulate=False)


@pytest.mark.gpu
@pytest.mark.parametrize("check", CHECKS)
def test_on_the_gpu(check, gpu):
    check(gpu)


@pytest.mark.gpu
@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.name)
def test_the_emulated_device_agrees_with_the_gpu(loop, gpu):
    agree, _, _ = compare(gpu, loop)
    assert agree


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS)
def test_on_the_emulated_device(check):
    gpu, _ = timed_accelerator("H200", step_ms=20, emulate=True)  # on a clock that nobody waits for
    check(gpu)


@pytest.mark.slow
@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.name)
def test_a_recording_holds_all_that_is_needed_to_repeat_it(loop, tmp_path):
    gpu = get_accelerator("H200", step_ms=20, emulate=True)
    trace = run_loop(gpu, loop)
    run.save(loop, trace, trace, run.machine_facts(gpu), tmp_path)
    path = tmp_path / f"emulated-h200-{loop.name}-measured.json"
    about = json.loads(path.read_text())["otherData"]
    assert about["loop"]["load_ms"] == loop.load_ms
    assert {"gpu", "driver", "torch", "date", "command"} <= set(about)
    spans = load_chrome(path).spans
    assert [span.lane for span in spans].count("gpu") == 25 * loop.kernels
    assert min(span.start_ns for span in spans) >= 0


def test_without_a_gpu_the_script_says_so(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert run.main([]) == 1
    assert "add --emulated" in capsys.readouterr().out
