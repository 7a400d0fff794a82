"""Exercise 08.1: move work from the workers to the device."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from course_utils.exercises.judging.compare import Slip, compare, equal
from course_utils.exercises.judging.fake_gpu import expect_no_wait
from course_utils.exercises.judging.probes import expect_as_fast, one_thread, process_unchanged
from course_utils.exercises.nb08.problem import MEAN, STD
from course_utils.loading.images import normalize
from course_utils.stories.operations import count_operations
from course_utils.teaching.exercise import Verdict, exercise, expect, right
from keepfed.loaders.images import IMAGENET_MEAN, IMAGENET_STD

SIDE, SIZE = 256, 224
CROP_BYTES = 3 * SIZE * SIZE
CLOSE = 1e-4

InWorker = Callable[[Tensor, int, int], Tensor]
OnDevice = Callable[[Tensor, Tensor], Tensor]


class _Samples:
    """Images, the corner of the crop of each, and which of them are flipped."""

    def __init__(self, batch: int, seed: int):
        generator = torch.Generator().manual_seed(seed)
        # no image has a 255, so dividing by the maximum differs from dividing by 255
        shape = (batch, 3, SIDE, SIDE)
        self.images = torch.randint(200, shape, generator=generator, dtype=torch.uint8)
        corners = torch.randint(SIDE - SIZE + 1, (batch, 2), generator=generator)
        corners[:2] = torch.tensor([[0, SIDE - SIZE], [SIDE - SIZE, 0]])[:batch]
        self.flips = torch.arange(seed, seed + batch) % 3 != 1
        self.cases = [(i, *c) for i, c in zip(self.images, corners.tolist(), strict=True)]
        self.cut = torch.stack([*map(_cut, self.cases)])

    def plain(self, _: Any = None) -> Tensor:
        """Return what the worker did before: crops that are scaled, and some of them flipped."""
        scaled = normalize(self.cut / 255)
        return torch.where(self.flips.view(-1, 1, 1, 1), scaled.flip(-1), scaled)

    def __str__(self) -> str:
        return f"a batch of {len(self.cut)} images"


class _NonBlocking(TorchFunctionMode):
    """Notes whether a tensor is copied with non_blocking=True."""

    seen = False

    def __torch_function__(
        self, function: Any, _types: Any, args: Any = (), options: Any = None
    ) -> Any:
        options = options or {}
        self.seen |= function is Tensor.to and bool(options.get("non_blocking"))
        return function(*args, **options)


def _cut(case: Any) -> Tensor:
    image, top, left = case
    return image[:, top : top + SIZE, left : left + SIZE]  # type: ignore[no-any-return]


def _flipped(samples: _Samples, got: Any, wanted: Tensor) -> bool:
    """Return whether each image is right but for its flip."""
    if not isinstance(got, Tensor) or got.shape != wanted.shape or equal(got, wanted):
        return False
    turned = wanted.flip(-1)
    return all(
        torch.allclose(image, one, 0, CLOSE) or torch.allclose(image, other, 0, CLOSE)
        for image, one, other in zip(got.to(wanted), wanted, turned, strict=True)
    )


WORKER_SLIPS = (
    Slip(
        lambda _, got, __: isinstance(got, Tensor) and got.nbytes > CROP_BYTES,
        f"in_worker returns {{got.nbytes:,}} bytes for each image, as {{got.dtype}}. "
        f"Only {CROP_BYTES:,} are needed, as uint8.",
        "Return the slice of the image in uint8. Divide by 255 on the device.",
    ),
)
DEVICE_SLIPS = (
    Slip(
        _flipped,
        "The wrong images are flipped: none, all of them, or exactly those that must stay.",
        "flips is true for the images to flip, and hint 2 shows how to choose.",
    ),
    Slip(
        lambda _, got, wanted: (
            isinstance(got, Tensor) and got.shape == wanted.shape and not equal(got, wanted)
        ),
        "The values differ from those of the given function: they are not scaled or normalized "
        "alike, or flipped along another dimension.",
        "Use images / 255, then (images - MEAN) / STD. In uint8, MEAN.to(images) gives 0. The last "
        "dimension is the width: images.flip(-1).",
    ),
)


@exercise("08.1", title="Move the work to the device", seconds=60)
@one_thread()
def split(in_worker: InWorker, on_device: OnDevice) -> Verdict:
    """Check two functions that do together what the workers did alone."""
    _restore()  # an earlier attempt may have changed the constants
    four, other, one, twelve = (_Samples(n, seed) for seed, n in enumerate((4, 4, 1, 12)))
    for case in (*four.cases, *one.cases):
        _check_worker(in_worker, case)
    few, _, _, many = (_check_device(on_device, batch) for batch in (four, other, one, twelve))
    expect(
        many <= few,
        f"on_device needs {few} torch operations for 4 images, but {many} for 12. It works on one "
        "image at a time.",
        "Write it for the whole batch, as in hint 2.",
    )
    expect_no_wait(on_device, twelve.cut, twelve.flips)
    expect_as_fast(partial(in_worker, *one.cases[0]), _cut(one.cases[0]).contiguous)
    expect_as_fast(partial(on_device, one.cut, one.flips), one.plain)
    return right(
        f"A quarter of the bytes over the bus, almost no work in the workers, and the same values. "
        f"on_device needs {few} operations and views, whatever the batch size."
    )


def _check_worker(in_worker: InWorker, case: tuple[Tensor, int, int]) -> None:
    with process_unchanged(*case):
        work, crop = count_operations(in_worker, *case)
    compare(lambda _: crop, _cut, [case], *WORKER_SLIPS, show=lambda c: f"top, left = {c[1:]}")
    expect(
        work.bytes_written <= 3 * CROP_BYTES,  # two copies that crop are allowed
        f"in_worker returns few bytes, but writes {work.bytes_written:,} on the way.",
        "Only the slice belongs in the worker.",
    )


def _check_device(on_device: OnDevice, samples: _Samples) -> int:
    """Check one batch, and return the number of operations."""
    with process_unchanged(samples.cut, samples.flips), _NonBlocking() as copies:
        work, result = count_operations(on_device, samples.cut, samples.flips)
    expect(
        not copies.seen,
        "on_device copies with non_blocking=True although its images are not on a CUDA device. The "
        "copy may then contain wrong values.",
        "Write non_blocking=images.is_cuda, as in hint 3.",
    )
    expect(
        not _restore(),
        "on_device changes MEAN or STD, so the second batch is normalized with different values.",
        "Do not use operations that end with an underscore. mean * 255 is a new tensor.",
    )
    wanted = samples.plain()
    if isinstance(result, Tensor) and result.shape == wanted.shape:
        near = torch.isclose(result, wanted.to(result), rtol=0, atol=CLOSE)
        result = torch.where(near, wanted.to(result), result)
    compare(lambda _: result, _Samples.plain, [samples], *DEVICE_SLIPS, show=str)
    expect(
        work.float_bits <= 32,
        f"on_device computes in float{work.float_bits}. That needs twice the memory, and many GPUs "
        "compute 32 to 64 times more slowly with it.",
        "images / 255 is float32. Do not call .double().",
    )
    return work.calls + work.views


def _restore() -> bool:
    """Reset MEAN and STD to their values, and return whether they had others."""
    changed = False
    for constant, values in (MEAN, IMAGENET_MEAN), (STD, IMAGENET_STD):
        given = torch.tensor(values, dtype=torch.float32).view(3, 1, 1)
        changed |= not torch.equal(constant, given)
        constant.copy_(given)
    return changed
