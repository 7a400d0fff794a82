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


MANY_BYTES = Slip(
    lambda _, got, __: isinstance(got, Tensor) and got.nbytes > CROP_BYTES,
    f"in_worker returns {{got.nbytes:,}} bytes for each image, as {{got.dtype}}. "
    f"Only {CROP_BYTES:,} are needed, as uint8.",
    "Return the slice of the image in uint8. Divide by 255 on the device.",
)
OTHER_VALUES = Slip(
    lambda _, got, wanted: (
        isinstance(got, Tensor) and got.shape == wanted.shape and not equal(got, wanted)
    ),
    "The values differ from those of the given function: they are not scaled or normalized "
    "alike, other images are flipped, or along another dimension.",
    "Use images / 255, then (images - MEAN) / STD. In uint8, MEAN.to(images) gives 0. flips is "
    "true for the images to flip, and the last dimension is the width.",
)


@exercise("08.1", title="Move the work to the device", seconds=60)
@one_thread()
def split(in_worker: InWorker, on_device: OnDevice) -> Verdict:
    """Check two functions that do together what the workers did alone."""
    for constant, values in (MEAN, IMAGENET_MEAN), (STD, IMAGENET_STD):
        constant.copy_(torch.tensor(values).view(3, 1, 1))  # an earlier attempt may change them
    four, other, one, twelve = (_Samples(n, seed) for seed, n in enumerate((4, 4, 1, 12)))
    for case in (*four.cases, *one.cases):
        _check_worker(in_worker, case)
    few, _, _, many = _check_device(on_device, [four, other, one, twelve])
    expect(
        many <= few,
        f"on_device needs {few} torch operations for 4 images, but {many} for 12. It works on one "
        "image at a time.",
        "Write it for the whole batch, as in hint 2.",
    )
    expect_no_wait(on_device, twelve.cut, twelve.flips)
    expect_as_fast(partial(on_device, one.cut, one.flips), one.plain)
    return right(
        f"A quarter of the bytes over the bus, almost no work in the workers, and the same values. "
        f"on_device needs {few} operations and views, whatever the batch size."
    )


def _check_worker(in_worker: InWorker, case: tuple[Tensor, int, int]) -> None:
    with process_unchanged(*case):
        work, crop = count_operations(in_worker, *case)
    compare(lambda _: crop, _cut, [case], MANY_BYTES, show=lambda c: f"top, left = {c[1:]}")
    expect(
        work.bytes_written <= 3 * CROP_BYTES,  # two copies that crop are allowed
        f"in_worker returns few bytes, but writes {work.bytes_written:,} on the way.",
        "Only the slice belongs in the worker.",
    )


def _check_device(on_device: OnDevice, batches: list[_Samples]) -> list[int]:
    """Check some batches, and return the number of operations of each."""
    counts = list[int]()

    def answer(samples: _Samples) -> Any:
        with process_unchanged(samples.cut, samples.flips), _NonBlocking() as copies:
            work, result = count_operations(on_device, samples.cut, samples.flips)
        expect(
            not copies.seen,
            "on_device copies with non_blocking=True although its images are not on a CUDA device. "
            "The copy may then contain wrong values.",
            "Write non_blocking=images.is_cuda, as in hint 3.",
        )
        counts.append(work.calls + work.views)
        wanted = samples.plain()
        if isinstance(result, Tensor) and result.shape == wanted.shape:
            near = torch.isclose(result, wanted.to(result), rtol=0, atol=CLOSE)
            result.copy_(torch.where(near, wanted.to(result), result))
        return result

    compare(answer, _Samples.plain, batches, OTHER_VALUES, show=str)
    return counts
