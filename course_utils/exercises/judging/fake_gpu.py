"""Run a function on fake tensors of a GPU, and refuse it if the program would wait for the GPU.

Fake tensors have a device, a shape and a dtype, but no values, so they need no GPU. An operation
that needs values, or mixes devices, raises an error.
"""

from collections.abc import Callable
from contextlib import ExitStack
from functools import cache, partial
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from course_utils.stories.operations import count_operations
from course_utils.teaching.exercise import expect, refuse

# parts of torch's messages if tensors are on different devices, or if values are needed
_MIXED = "same device", "different devices"
_NEEDS_VALUES = "aten.", "not supported for tensor subclasses", "data-dependent"
# calls that make a program wait for its GPU; printing a tensor copies it first
_WAITS = {
    "torch.Tensor.__repr__": "printing a tensor",
    "torch.cuda.synchronize": "torch.cuda.synchronize",
    "torch.accelerator.synchronize": "torch.accelerator.synchronize",
    "torch.cuda.Event.synchronize": "Event.synchronize",
}


@cache
def _mode() -> Any:
    # the import takes a second, and an answer may keep fake tensors, which belong to one mode
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode(allow_non_fake_inputs=True)


def expect_no_wait(answer: Callable[..., Any], *given: Any) -> None:
    """Refuse a function that would fail on a GPU, or make the program wait for it.

    Args:
        answer: It is called twice, because the first call may create constants that it keeps.
        given: Its arguments. Fake tensors on a GPU replace tensors.
    """
    waits: list[str] = []

    def wait(what: str, *_: Any, **__: Any) -> str:
        waits.append(what)
        return "a tensor"

    with (
        ExitStack() as stack,
        _mode(),
        patch("torch.cuda.is_available", lambda: True),
        patch("torch._subclasses.fake_tensor.init_gpu_context", lambda _: None),
        patch.object(type(_mode()), "avoid_device_init", True),
    ):
        for name, what in _WAITS.items():
            stack.enter_context(patch(name, partial(wait, what)))
        there = [
            torch.empty_like(value, device="cuda:0") if isinstance(value, Tensor) else value
            for value in given
        ]
        try:
            answer(*there)
            waits.clear()
            work, result = count_operations(answer, *there)
        except Exception as error:  # whatever the learner's code raises
            if any(words in str(error) for words in _MIXED):
                refuse(
                    "The values are right here, but it fails on a GPU. The images are on the GPU, "
                    "and another tensor is in host memory.",
                    "Move each constant with .to(images.device, non_blocking=images.is_cuda).",
                )
            if any(words in str(error) for words in _NEEDS_VALUES):
                refuse(
                    "The values are right, but each step waits for values from the GPU: for an "
                    "`if`, an index with True and False, .tolist() or .numpy().",
                    "Compute both, and choose with torch.where or with tensors as indices.",
                )
            raise
    waits += ["copying from or to the host"] * bool(work.blocking)
    expect(
        not waits,
        f"The values are right, but each step makes the program wait: {', '.join({*waits})}.",
        "Leave such calls out. Create tensors with device=images.device, and copy constants with "
        ".to(images.device, non_blocking=images.is_cuda).",
    )
    expect(
        isinstance(result, Tensor) and result.device.type == "cuda",
        "The images are on a GPU, but the result is not.",
        "Return a tensor on images.device.",
    )
