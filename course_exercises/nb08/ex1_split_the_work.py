"""Check of notebook 08: work moved from the workers to the device, judged by bytes and values."""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from course_exercises.nb08.problem import MEAN, STD
from course_stories.operations import Operations, count_operations
from course_utils.loading.images import normalise
from course_utils.teaching.exercise import Verdict, exercise, expect, right
from course_utils.teaching.notebook import learner_line
from keepfed.loaders.images import IMAGENET_MEAN, IMAGENET_STD

SIDE, SIZE = 256, 224
CROP_BYTES = 3 * SIZE * SIZE
CLOSE = 1e-4
_NEEDS_VALUES = "nonzero", "Tensor.item()"  # what torch says where a device has no memory
_TO_THE_HOST = "Cannot copy out", "can't convert meta"
_BRING_ALONG = "Bring them along: MEAN.to(images.device, non_blocking=True), and STD."
_WINDOW = "image[:, top : top + 224, left : left + 224]."
_FLIP = "torch.where(flips.view(-1, 1, 1, 1), images.flip(-1), images)."
_WIDTH = "The last dimension is the width: images.flip(-1)."

InWorker = Callable[[Tensor, int, int], Tensor]
OnDevice = Callable[[Tensor, Tensor], Tensor]


class _Samples:
    """Images, the corner of the crop in each, and which are to be flipped."""

    def __init__(self, batch: int):
        generator = torch.Generator().manual_seed(batch)
        # none has a 255, so that dividing by the largest is something else
        images = torch.randint(200, (batch, 3, SIDE, SIDE), generator=generator)
        self.images = images.to(torch.uint8)
        corners = torch.randint(SIDE - SIZE + 1, (batch, 2), generator=generator)
        corners[:2] = torch.tensor([[0, SIDE - SIZE], [SIDE - SIZE, 0]])  # the ends come up too
        self.corners: list[list[int]] = corners.tolist()
        self.flips = torch.arange(batch) % 3 != 1
        self.cut = self.through(lambda image, y, x: image[:, y : y + SIZE, x : x + SIZE])

    def through(self, in_worker: InWorker) -> Tensor:
        """Return what a worker makes of each image, as a batch."""
        pairs = zip(self.images, self.corners, strict=True)
        return torch.stack([in_worker(image, *corner) for image, corner in pairs])

    def turned(self, dimension: int) -> Tensor:
        """Return the crops, uint8, flipped along a dimension where it was drawn."""
        return torch.where(self.flips.view(-1, 1, 1, 1), self.cut.flip(dimension), self.cut)


@exercise("08.1", title="Move the work to the device")
def split(in_worker: InWorker, on_device: OnDevice) -> Verdict:
    """Judge two functions that do together what the workers did alone."""
    calls = []
    _restore()  # what an earlier attempt may have changed
    for samples in _Samples(4), _Samples(12):
        sent = _judge_worker(in_worker, samples)
        work, result = _on_device(on_device, sent, samples.flips)
        _judge_values(result, samples)
        calls.append(work.calls + work.views)
    few, many = calls
    expect(
        many <= few,
        f"on_device asks torch for {few} operations for 4 images and for {many} for 12: it "
        "works on one image after the other.",
        f"Write it for the whole batch: {_FLIP}",
    )
    _judge_device(on_device, sent, samples.flips)
    return right(
        f"A quarter of the bytes over the bus, nearly no work in the workers, and the same values: "
        f"{work.calls} operations on the device, whatever the batch size."
    )


def _judge_worker(in_worker: InWorker, samples: _Samples) -> Tensor:
    image, corner = samples.images[0], samples.corners[0]
    before = image.clone()
    work, crop = count_operations(in_worker, image, *corner)
    expect(
        isinstance(crop, Tensor) and crop.ndim == 3,
        f"in_worker returns {_named(crop)}; a loader makes batches of tensors (3, height, width).",
        "End it with `return` and the tensor that is to cross the bus.",
    )
    expect(
        torch.equal(image, before),
        "in_worker changes the image that it was given, which a cache may hold.",
        "Leave out operations that end with an underscore.",
    )
    expect(
        not crop.is_floating_point(),
        f"in_worker returns {crop.dtype}: {crop.nbytes:,} bytes for each image cross the bus, and "
        "a core has written all of them.",
        "Leave it in uint8 in the worker; divide by 255 on the device.",
    )
    expect(
        crop.nbytes <= CROP_BYTES,
        f"The whole frame crosses the bus: {crop.nbytes:,} bytes for each image, of which "
        f"{CROP_BYTES:,} are used.",
        "Crop in the worker: a slice costs nothing there.",
    )
    expect(
        crop.dtype == torch.uint8 and crop.shape == (3, SIZE, SIZE),
        f"in_worker returns {crop.dtype} of {tuple(crop.shape)}, not uint8 of (3, {SIZE}, {SIZE}).",
        f"Return {_WINDOW}",
    )
    expect(
        work.bytes_written <= CROP_BYTES,
        f"in_worker returns few bytes but writes {work.bytes_written:,} on the way.",
        "Nothing but the slice is needed there.",
    )
    sent = samples.through(in_worker)
    expect(
        torch.equal(sent, samples.cut),
        "What in_worker returns is not the window with its corner at (top, left).",
        f"Rows first: {_WINDOW}",
    )
    return sent


def _on_device(on_device: OnDevice, sent: Tensor, flips: Tensor) -> tuple[Operations, Any]:
    """Return what on_device asks torch for, and its result."""
    before = sent.clone(), flips.clone()
    try:
        found = count_operations(on_device, sent, flips)
    except RuntimeError as error:
        shapes = "size of tensor" in str(error) or "broadcast" in str(error)
        expect(
            not (shapes and learner_line(error)),
            f"flips has one entry for each image, {tuple(flips.shape)}, and torch lines shapes up "
            "at their ends: it stands against the channels, the rows or the columns.",
            "Make it one condition for each image: flips.view(-1, 1, 1, 1).",
        )
        raise
    expect(
        all(map(torch.equal, (sent, flips), before)),
        "on_device writes into the batch that it was given, images or flips, which somebody else "
        "may still read.",
        f"Make a new tensor: {_FLIP}",
    )
    expect(
        not _restore(),
        "on_device changes MEAN or STD themselves, so that from the second batch on all is "
        "normalised by other numbers. They have been put right again.",
        "Leave out operations that end with an underscore: mean * 255 makes a new tensor.",
    )
    return found


def _restore() -> bool:
    """Give MEAN and STD their values again; return whether they had others."""
    changed = False
    for constant, values in (MEAN, IMAGENET_MEAN), (STD, IMAGENET_STD):
        given = torch.tensor(values).view(3, 1, 1)
        changed |= not torch.equal(constant, given)
        constant.copy_(given)
    return changed


def _judge_values(result: Any, samples: _Samples) -> None:
    truth = normalise(samples.turned(-1) / 255)
    expect(
        isinstance(result, Tensor) and result.shape == truth.shape,
        f"on_device returns {_named(result)}, not a batch of {tuple(truth.shape)}.",
        "Return the whole batch: images and flips come as (batch, 3, 224, 224) and (batch,).",
    )
    expect(
        result.dtype == torch.float32,
        f"on_device returns {result.dtype}; the model is trained in float32.",
        "images / 255 is float32 already.",
    )
    expect(
        result.isfinite().all(),
        "Some values are no numbers: something was divided by 0. MEAN.to(images) takes over the "
        "type of the images too, and 0.229 is 0 in uint8.",
        _BRING_ALONG,
    )
    for misconception, (next_step, values) in _slips(samples).items():
        expect(not _equal(result, values), misconception, next_step)
    expect(
        _equal(result, truth),
        f"The values differ by up to {(result - truth).abs().max():.2g} from those of the given "
        "pipeline.",
        "Hold it against its lines, one by one: scale, normalise, flip.",
    )


def _judge_device(on_device: OnDevice, sent: Tensor, flips: Tensor) -> None:
    """Refuse what mixes devices, or asks for values; the one without memory stands in for a GPU."""
    said, blocking, there = "", 0, (sent.to("meta"), flips.to("meta"))
    with patch.object(Tensor, "__repr__", return_value="a tensor") as printed:
        try:
            on_device(*there)  # which may make constants that it keeps
            blocking = count_operations(on_device, *there)[0].blocking
        except (RuntimeError, TypeError) as error:
            said = str(error)
    expect(
        not any(words in said for words in _NEEDS_VALUES),
        "The values are right, but the host waits for the device in each step: how large an index "
        "with True and False becomes, or which way an `if` goes, is decided by values there.",
        f"Compute both and choose: {_FLIP}",
    )
    expect(
        not any(words in said for words in _TO_THE_HOST),
        "The values are right, but a tensor goes back to the host, by .cpu(), .numpy() or "
        ".tolist(): the program waits in each step until the device has come so far.",
        f"Stay on the device: {_FLIP}",
    )
    expect(
        not printed.called,
        "The values are right, but a tensor is printed: the program waits in each step until the "
        "device has come so far.",
        "Leave the print out. A shape may be printed: it is known without the device.",
    )
    expect(
        not blocking,
        "The values are right, but a copy to the device holds the program up in each step, until "
        "all that came before is done; numbers that become a tensor there are copied, too.",
        _BRING_ALONG,
    )
    expect(
        not ("expected device" in said or "same device" in said),
        "The values are right here, but on a GPU it would end with an error: the images are there, "
        "and MEAN and STD, or tensors that you make or keep from an earlier call, are elsewhere.",
        _BRING_ALONG,
    )


def _slips(samples: _Samples) -> dict[str, tuple[str, Tensor]]:
    """Return the next step of those with a known misconception, and where it leads them."""
    cut, flipped = samples.cut, samples.turned(-1)
    scaled = flipped / 255

    def finished(crops: Tensor) -> Tensor:
        return normalise(crops / 255)

    return {
        "No image is flipped: flips is not used.": (_FLIP, finished(cut)),
        "Every image is flipped. flips says which ones are to be.": (_FLIP, finished(cut.flip(-1))),
        "Those images are flipped that are not to be, and the others are not.": (
            "torch.where(condition, a, b) takes a where the condition holds.",
            finished(torch.where(samples.flips.view(-1, 1, 1, 1), cut, cut.flip(-1))),
        ),
        "// divides whole numbers: of uint8 it leaves 0 or 1.": (
            "images / 255 gives float32.",
            normalise((flipped // 255).float()),
        ),
        "flip(0) turns round the order of the images in the batch, not the images.": (
            _WIDTH,
            finished(samples.turned(0)),
        ),
        "The images are turned upside down.": (_WIDTH, finished(samples.turned(-2))),
        "The values are normalised but were never scaled: uint8 goes up to 255, and mean and "
        "standard deviation are those of values up to 1.": (
            "Divide by 255 first.",
            normalise(flipped.float()),
        ),
        "The values are scaled but not normalised.": ("Subtract MEAN, divide by STD.", scaled),
        "The mean is subtracted, but nothing is divided by the standard deviation.": (
            "(images / 255 - MEAN) / STD.",
            scaled - MEAN,
        ),
    }


def _equal(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=0, atol=CLOSE)


def _named(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of {tuple(value.shape)}"
    return "nothing" if value is None else type(value).__name__
