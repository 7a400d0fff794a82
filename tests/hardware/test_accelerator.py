from dataclasses import fields

import pytest
import torch

from course_utils.hardware.gpu import PRESETS, get_accelerator, map_leaves


@pytest.mark.parametrize("name", PRESETS)
def test_every_figure_of_a_preset_names_its_source(name):
    preset = PRESETS[name]
    figures = {field.name for field in fields(preset)} - {"name", "sources"}
    assert set(preset.sources) == figures
    for source in preset.sources.values():
        assert source.split()[0].rstrip(":,") in {"specified", "measured", "assumed"}
        assert "https://" in source


def test_a_faster_gpu_needs_less_time_for_the_default_step():
    steps = [PRESETS[name].step_ms for name in ("RTX 3090", "A100", "H200")]
    assert steps == sorted(steps, reverse=True)


@pytest.mark.parametrize("name", PRESETS)
def test_pinned_memory_is_faster_than_pageable(name):
    assert PRESETS[name].pinned_gb_s > PRESETS[name].pageable_gb_s


def test_an_emulated_device_is_given_on_request_and_says_so():
    gpu = get_accelerator("A100", step_ms=7, emulate=True)
    assert gpu.emulated
    assert gpu.step_ms == 7
    assert "emulated A100" in repr(gpu)


def test_without_cuda_the_device_is_emulated(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert get_accelerator().emulated


def test_an_unknown_preset_lists_the_known_ones():
    with pytest.raises(ValueError, match="RTX 3090, A100, H200"):
        get_accelerator("RTX 9999")


def test_insisting_on_cuda_where_there_is_none_says_what_to_do(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match="leave out emulate=False"):
        get_accelerator(emulate=False)


def test_strings_and_none_are_leaves():
    assert map_leaves(lambda leaf: leaf, {"a": ("text", None, [1])}) == {"a": ("text", None, [1])}
