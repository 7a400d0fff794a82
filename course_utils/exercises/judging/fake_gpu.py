"""Run a function on fake tensors of a GPU, and refuse it if the program would wait for the GPU.

Fake tensors have a device, a shape and a dtype, but no values, so they need no GPU. An operation
that needs values, or mixes devices, raises an error.
"""

import pkgutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from course_utils.stories.operations import count_operations
from course_utils.teaching.exercise import expect, refuse

# parts of torch's messages if tensors are on different devices, or if values are needed
_MIXED = "same device", "different devices"
_NEEDS_VALUES = "aten.", "not supported for tensor subclasses", "data-dependent"
_PRINT = "torch.Tensor.__repr__"
_WAITS = [_PRINT, "torch.Tensor.pin_memory", "torch.cuda.empty_cache", "gc.collect", "time.sleep"]
_WAITS += ["torch.cuda.synchronize", "torch.accelerator.synchronize"]
_WAITS += ["torch.cuda.Event.synchronize", "torch.cuda.Stream.synchronize"]


@cache
def _mode() -> Any:
    # the import takes a second, and an answer may keep fake tensors, which belong to one mode
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode(allow_non_fake_inputs=True)


@contextmanager
def _as_on_a_gpu(answer: Callable[..., Any]) -> Iterator[list[str]]:
    """Let CUDA look available, and yield a list of the waiting functions that were called."""
    called: list[str] = []
    names = getattr(answer, "__globals__", {})
    with ExitStack() as stack:
        stack.enter_context(patch("torch.cuda.is_available", lambda: True))
        stack.enter_context(patch("torch._subclasses.fake_tensor.init_gpu_context", lambda _: None))
        stack.enter_context(patch.object(type(_mode()), "avoid_device_init", True))
        for name in _WAITS:
            real, stand_in = pkgutil.resolve_name(name), _stand_in(called, name)
            bound = {key: stand_in for key, value in names.items() if value is real}
            stack.enter_context(patch(name, stand_in))
            stack.enter_context(patch.dict(names, bound))
        yield called


def _stand_in(called: list[str], name: str) -> Callable[..., Any]:
    def note(*given: Any, **_: Any) -> Any:
        called.append("printing a tensor" if name == _PRINT else name)
        return given[0] if name.endswith("pin_memory") else "a tensor"

    return note


def expect_no_wait(answer: Callable[..., Any], *given: Any) -> None:
    """Refuse a function that would fail on a GPU, or make the program wait for it.

    Args:
        answer: It is called twice, because the first call may create constants that it keeps.
        given: Its arguments. Fake tensors on a GPU replace tensors.
    """
    with _mode(), _as_on_a_gpu(answer) as called:
        there = [
            torch.empty_like(one, device="cuda:0") if isinstance(one, Tensor) else one
            for one in given
        ]
        try:
            answer(*there)
            called.clear()
            work, result = count_operations(answer, *there)
        except Exception as error:  # whatever the learner's code raises
            if any(words in str(error) for words in _MIXED):
                refuse(
                    "The values are right here, but it fails on a GPU. The images are on the GPU, "
                    "and another tensor is in host memory.",
                    "Move each constant with .to(images.device, non_blocking=True), in each call.",
                )
            if any(words in str(error) for words in _NEEDS_VALUES):
                refuse(
                    "The values are right, but each step waits for values from the GPU: for an "
                    "`if`, an index with True and False, .tolist() or .numpy().",
                    "Compute both, and choose with torch.where or with tensors as indices.",
                )
            raise
    called += ["copying from or to the host"] * bool(work.blocking)
    expect(
        not called,
        f"The values are right, but each step makes the program wait: {', '.join({*called})}.",
        "Leave such calls out. Create tensors with device=images.device, and copy constants with "
        ".to(images.device, non_blocking=True).",
    )
    expect(
        isinstance(result, Tensor) and result.device.type == "cuda",
        "The images are on a GPU, but the result is not.",
        "Return a tensor on images.device.",
    )
