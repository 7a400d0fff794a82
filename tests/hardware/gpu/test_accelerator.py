import pytest
import torch

from course_utils.hardware.gpu import accelerator, get_accelerator, rank_accelerator


def test_device_is_emulated_on_request_or_without_cuda_and_labeled(monkeypatch):
    gpu = get_accelerator("A100", step_ms=7, emulate=True)
    assert (gpu.emulated, gpu.step_ms) == (True, 7)
    assert repr(gpu) == "emulated A100 (times of a preset, not of this machine)"
    with pytest.raises(ValueError, match=r"no preset 'RTX'\. Use one of: RTX 3090, A100, H200"):
        get_accelerator("RTX", emulate=True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert get_accelerator().emulated
    with pytest.raises(RuntimeError, match="Omit emulate=False"):
        get_accelerator(emulate=False)


def test_rank_gets_its_gpu_or_an_emulated_one_if_there_are_too_few(monkeypatch):
    chosen, counts = [], {}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: counts["devices"])
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setattr(accelerator, "CudaAccelerator", lambda step_ms: f"cuda:{chosen[-1]}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def as_rank(rank, ranks, devices):
        counts["devices"] = devices
        monkeypatch.setenv("LOCAL_RANK", str(rank))
        monkeypatch.setenv("LOCAL_WORLD_SIZE", str(ranks))
        return rank_accelerator()

    assert as_rank(1, ranks=2, devices=2) == "cuda:1"
    with pytest.warns(UserWarning, match="Rank 1 uses an emulated GPU, because 3 ranks cannot"):
        assert as_rank(1, ranks=3, devices=2).emulated
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")  # the batch system shows only one
    assert as_rank(3, ranks=4, devices=1) == "cuda:0"
