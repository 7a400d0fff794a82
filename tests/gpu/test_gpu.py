import pytest
import torch
from gpu_checks import CHECKS
from gpu_loops import LOOPS, compare

from course_utils.hardware.gpu import get_accelerator

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.fixture(scope="module")
def gpu():
    return get_accelerator("H200", step_ms=20, emulate=False)


@pytest.mark.parametrize("check", CHECKS)
def test_on_the_gpu(check, gpu):
    check(gpu)


@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.name)
def test_the_emulated_device_agrees_with_the_gpu(loop, gpu):
    agree, _, _ = compare(gpu, loop)
    assert agree
