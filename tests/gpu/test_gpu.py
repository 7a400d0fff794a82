"""The checks pass on the GPU, if there is one, and on the emulated device."""

import json

import gpu_races
import pytest
import torch
from gpu_checks import CHECKS
from gpu_loops import LOOPS, compare, run_loop
from gpu_parts import Notes, machine_facts, save
from gpu_probes import PROBES

from course_utils.hardware.gpu import get_accelerator, timed_accelerator
from keepfed.measure.exchange.chrome import load_chrome


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
def test_emulated_device_agrees_with_gpu(loop, gpu):
    compare(gpu, loop)


@pytest.mark.slow
def test_checks_pass_on_the_emulated_device():
    for check in CHECKS:
        gpu, _ = timed_accelerator("H200", step_ms=20, emulate=True)  # with a virtual clock
        check(gpu)


@pytest.mark.slow
def test_probes_measure_properties_of_emulated_device():
    gpu, clock = timed_accelerator("H200", step_ms=20, emulate=True)
    only_cuda = ("probe_anchors", "probe_launches")
    figures = {p.__name__: p(gpu, clock) for p in PROBES if p.__name__ not in only_cuda}
    assert figures["probe_bus"]["pinned"][64] == pytest.approx(56.3, rel=0.01)
    held = figures["probe_small_copies"]
    assert [held[f"{kb} KB"] > 40 for kb in (16, 64, 65, 1024)] == [False, False, True, True]
    assert figures["probe_power"]["at rest"] == "0 %, 72 W of 700 W, P0"
    assert all(ms == pytest.approx(24 / 12.9, rel=0.01) for ms in figures["probe_pinning"]["ms"])
    assert figures["probe_waiting"].keys() == {"loss.item()", "synchronize()"}


def test_sanitizer_designs_match_notebook_09():
    for design, right in ((2, {0}), (3, range(1, 6)), (4, {6})):
        gpu, _ = timed_accelerator("H200", emulate=True)
        assert gpu_races.right_batches(gpu, design) in right, design


@pytest.mark.slow
@pytest.mark.parametrize(
    "loop",
    [LOOPS[0], *(pytest.param(loop, marks=pytest.mark.full) for loop in LOOPS[1:])],
    ids=lambda loop: loop.name,
)
def test_recording_contains_everything_to_repeat_it(loop, tmp_path):
    gpu = get_accelerator("H200", step_ms=20, emulate=True)
    trace = run_loop(gpu, loop)
    save(loop, Notes("loops", tmp_path, machine_facts(emulated=True)), trace, trace)
    path = tmp_path / f"emulated-h200-{loop.name}-measured.json"
    about = json.loads(path.read_text())["otherData"]
    assert about["loop"]["load_ms"] == loop.load_ms
    assert {"gpu", "driver", "torch", "date", "command"} <= set(about)
    spans = load_chrome(path).spans
    assert [span.lane for span in spans].count("gpu") == 25 * loop.kernels
    assert min(span.start_ns for span in spans) >= 0
