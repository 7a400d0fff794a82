"""Check of notebook 08: crops for a whole batch. Its images say in each pixel where it lies."""

from collections.abc import Callable

import torch
from torch import Tensor

from course_stories.operations import count_operations
from course_utils.teaching.exercise import Verdict, exercise, expect, refuse, right

MANY = 2_000  # crops, so that each place comes up hundreds of times
BATCHES = 60  # in a row, of which by chance no two are cut alike
RandomCrops = Callable[[Tensor, int, torch.Generator], Tensor]

_INDEX = (
    "Gather all windows at once: rows of (batch, 1, size, 1) and columns of (batch, 1, 1, size) "
    "as indices, beside those of the samples and channels."
)
_OFFSETS = "torch.randint(height - size + 1, (batch,), generator=generator), the same for width."


@exercise("08.3", title="Random crops for a whole batch")
def crop_a_batch(random_crops: RandomCrops) -> Verdict:
    """Judge `random_crops(images, size, generator)` by which pixels it takes."""
    for height, width in (40, 40), (30, 60), (60, 30):
        _judge_windows(random_crops, height, width)
    _judge_channels(random_crops)
    _judge_range(random_crops)
    _judge_sharing(random_crops)
    _judge_generator(random_crops)
    _judge_edges(random_crops)
    counts = []
    for batch in 4, MANY:
        images, generator = _coordinates(batch, 5, 6), torch.Generator().manual_seed(0)
        counted, _ = count_operations(random_crops, images, 2, generator)
        counts.append(counted.calls + counted.views)
    few, many = counts
    expect(
        many <= few,
        f"For 4 images you ask torch for {few} operations, for {MANY} it is {many}: there is a "
        "loop over the samples, or over pieces of the batch. Each call costs the host time, also a "
        "slice, and the GPU waits for it.",
        _INDEX,
    )
    return right(
        f"{few} operations whatever the batch size, every sample its own window, all windows "
        "possible, and the generator repeats them."
    )


def _coordinates(batch: int, height: int, width: int) -> Tensor:
    """Return uint8 (batch, 3, height, width): row, column and sample of each pixel."""
    sample, row, column = torch.meshgrid(*map(torch.arange, (batch, height, width)), indexing="ij")
    return torch.stack([row, column, sample], 1).to(torch.uint8)


def _mark(pixels: Tensor) -> Tensor:
    """Return a channel by which such a pixel is known from one that is mixed of several."""
    mixed = (pixels.long() * torch.tensor([7, 13, 29]).view(3, 1, 1)).sum(1, keepdim=True)
    return (mixed % 251).to(torch.uint8)


def _ask(random_crops: RandomCrops, images: Tensor, size: int, seed: int = 0) -> Tensor:
    """Return the crops; refuse what is no batch of them."""
    before, (height, width) = images.clone(), images.shape[-2:]
    try:
        crops = random_crops(images, size, torch.Generator().manual_seed(seed))
    except IndexError as error:
        if "broadcast" in str(error):  # nothing is outside: too few offsets, or of another shape
            raise
        refuse(
            f"A window of {size} reaches outside of an image of height {height} and width {width}.",
            "The last possible offset is height - size: torch.randint(height - size + 1, ...)."
            if height == width
            else "Rows end at the height and columns at the width: (batch, channels, height, "
            "width).",
        )
    expect(
        isinstance(crops, Tensor),
        f"You return {type(crops).__name__}, not a tensor.",
        "Return the crops of all samples in one tensor.",
    )
    expect(
        torch.equal(images, before),
        "The images themselves have changed.",
        "Make a new tensor and leave the old one as it is.",
    )
    wanted = (*images.shape[:2], size, size)
    returned = f"From images of {tuple(images.shape)} you return {tuple(crops.shape)}, not {wanted}"
    expect(
        crops.shape == wanted or crops.shape[-3:] != (size, size, wanted[1]),
        f"{returned}: the channels have come last, as they do where a `:` stands between indices.",
        _INDEX,
    )
    expect(
        crops.shape[2:].count(wanted[0]) <= wanted[2:].count(wanted[0]),
        f"{returned}: each image was cut at the places of all samples.",
        _INDEX,
    )
    expect(
        crops.shape[:-2] == wanted[:-2],
        f"{returned}: samples or channels are gone.",
        "Keep the first two dimensions, also where they are 1 or not 3; leave out squeeze().",
    )
    expect(
        crops.shape == wanted,
        f"{returned}. A window that reaches outside comes out smaller.",
        "Offsets go from 0 to height - size and to width - size, both included.",
    )
    expect(
        crops.dtype == torch.uint8,
        f"The crops are {crops.dtype}: four or more times the bytes before anybody needs them.",
        "Leave them in uint8: indexing does not change the type.",
    )
    return crops


def _judge_windows(random_crops: RandomCrops, height: int, width: int) -> None:
    images = _coordinates(64, height, width)
    crops = _ask(random_crops, torch.cat([images, _mark(images)], 1), 24)
    if not torch.equal(crops[:, 3:], _mark(crops[:, :3])):
        _judge_channels(random_crops)
        refuse(
            "What you return has values that no pixel of the images has: they are mixed from "
            "neighbours, or filled in at the border.",
            "A crop copies pixels, which indexing does; grid_sample and resize compute new ones.",
        )
    rows, columns, samples, _ = crops.unbind(1)
    top, left = rows[:, :1, :1], columns[:, :1, :1]
    expect(
        (samples == torch.arange(64).view(-1, 1, 1)).all(),
        "Pixels of one sample end up in another.",
        "Crop i is cut out of images[i]: torch.arange(batch).view(-1, 1, 1, 1) as the first index.",
    )
    across = torch.arange(24)
    down = across[:, None]
    expect(
        not ((rows == top + across) & (columns == left + down)).all(),
        "Rows and columns are swapped: the pictures come out mirrored at their diagonal.",
        "Rows vary along dimension 2, columns along dimension 3.",
    )
    expect(
        ((rows == top + down) & (columns == left + across)).all(),
        "What you return is no window: its pixels are not neighbours in the image.",
        "One offset for each sample: offset + torch.arange(size).",
    )
    _judge_offsets(top.flatten(), left.flatten())


def _judge_offsets(top: Tensor, left: Tensor) -> None:
    windows = len({*zip(top.tolist(), left.tolist(), strict=True)})
    expect(
        windows > 1,
        f"All {len(top)} samples are cut at the same place, ({int(top[0])}, {int(left[0])}): one "
        "set of random numbers for the batch, as torchvision draws it.",
        f"Draw an offset for each sample: {_OFFSETS}",
    )
    for name, offsets in ("rows", top), ("columns", left):
        expect(
            len({*offsets.tolist()}) > 1,
            f"The offset of the {name} is the same for all {len(top)} samples.",
            f"Draw both for each sample: {_OFFSETS}",
        )
    expect(
        not torch.equal(top, left),
        "Each sample's two offsets are equal: all windows lie on the diagonal.",
        f"Draw them apart: {_OFFSETS}",
    )


def _judge_channels(random_crops: RandomCrops) -> None:
    """Ask for crops of images with four equal channels: those of the crops have to be equal."""
    grey = torch.arange(256).to(torch.uint8).view(1, 1, 16, 16).expand(64, 4, -1, -1)
    crops = _ask(random_crops, grey, 8)
    expect(
        torch.equal(crops, crops[:, :1].expand_as(crops)),
        "The channels of an image are cut at different places: a grey image comes out in colours.",
        f"One window for each sample, the same for its channels: {_OFFSETS}",
    )


def _judge_range(random_crops: RandomCrops) -> None:
    """Ask for so many crops that every offset has to come up, and as often as the others."""
    crops = _ask(random_crops, _coordinates(MANY, 5, 6), 2)  # more places than the window is wide
    for name, length, offsets in (("top", 5, crops[:, 0, 0, 0]), ("left", 6, crops[:, 1, 0, 0])):
        missing = sorted({*range(length - 2 + 1)} - {*offsets.tolist()})
        expect(
            not missing,
            f"Of the {length - 2 + 1} possible values of {name}, {missing} never came up in {MANY} "
            "crops: some pixels at the edge are never seen, or hardly.",
            "torch.randint leaves out its upper end: torch.randint(height - size + 1, ...).",
        )
        counts = offsets.bincount()
        expect(
            counts.max() < 1.5 * counts.min(),
            f"The values of {name} do not come up equally often: {counts.tolist()} of {MANY}.",
            "torch.randint draws all of them alike; rounding halves the share of the two ends.",
        )
    top, left = crops[:, 0, 0, 0].long(), crops[:, 1, 0, 0].long()
    often = (5 * top + left).bincount() > MANY / 20 / 2
    expect(
        often.sum() == 20,
        f"20 pairs of a sample's top and left are possible, and only {often.sum()} come up as "
        "often as they should: one of the two depends on the other.",
        f"Draw each number for itself: {_OFFSETS}",
    )
    for name, offsets in ("top", top), ("left", left):
        wave = torch.fft.fft((offsets - offsets.double().mean()) / offsets.double().std())
        # how alike the batch is to itself, moved by some samples, and to itself in reverse
        moved, turned = (torch.fft.ifft(wave * other).real / MANY for other in (wave.conj(), wave))
        expect(
            max(moved[1:].abs().max(), turned.abs().max()) < 0.25,
            f"The {name} of a sample depends on that of another one in the batch.",
            f"Draw each number for itself: {_OFFSETS}",
        )


def _judge_sharing(random_crops: RandomCrops) -> None:
    places = _ask(random_crops, _coordinates(64, 40, 40), 24)[:, :2, 0, 0].tolist()
    windows = len({*map(tuple, places)})
    expect(
        windows > 0.7 * len(places),
        f"{len(places)} samples are cut at only {windows} places: some share their offsets.",
        f"Draw as many as there are samples: {_OFFSETS}",
    )


def _judge_edges(random_crops: RandomCrops) -> None:
    for height, width in (16, 40), (40, 16), (16, 16):
        image = _coordinates(1, height, width)
        crops = [_ask(random_crops, image, 16, seed) for seed in range(8)]
        alike = all(torch.equal(crop, crops[0]) for crop in crops)
        expect(
            height != width or (alike and torch.equal(crops[0], image)),
            "Where the window is as large as the image, the image itself has to come out.",
            f"There is one possible offset then, 0: {_OFFSETS}",
        )
        expect(
            height == width or not alike,
            f"A batch of one image of {height} by {width} is always cut at the same place.",
            f"Draw from all places, however many samples there are: {_OFFSETS}",
        )
    images = _coordinates(5, 30, 20)
    channels_last = images.contiguous(memory_format=torch.channels_last)
    expect(
        torch.equal(_ask(random_crops, channels_last, 9), _ask(random_crops, images, 9)),
        "Images in channels-last memory give other crops than the same images in the usual one.",
        "Index the tensor instead of looking at its memory.",
    )


def _judge_generator(random_crops: RandomCrops) -> None:
    images = _coordinates(32, 60, 60)
    torch.manual_seed(1)
    first = _ask(random_crops, images, 20)
    torch.manual_seed(2)
    before = torch.get_rng_state()
    again = _ask(random_crops, images, 20)
    expect(
        torch.equal(first, again),
        "The same seed gives other crops: what you draw does not come from the generator.",
        "torch.randint(..., generator=generator).",
    )
    expect(
        torch.equal(before, torch.get_rng_state()),
        "The random numbers of the whole program have changed, for all who draw after you.",
        "Draw from the generator alone, and seed nothing.",
    )
    generator, other = torch.Generator().manual_seed(0), _ask(random_crops, images, 20, seed=5)
    one, two = (random_crops(images, 20, generator) for _ in range(2))
    expect(
        not torch.equal(one, two) and not torch.equal(first, other),
        "Every call gives the same crops: so every epoch does, and the augmentation is frozen.",
        "Draw from the generator as it comes, and do not seed it.",
    )
    many = {random_crops(images, 20, generator).numpy().tobytes() for _ in range(BATCHES)}
    expect(
        len(many) == BATCHES,
        f"{BATCHES} batches in a row have only {len(many)} different sets of windows: what you "
        "draw has few values, and the rest follows from it.",
        f"Draw each number from the generator itself: {_OFFSETS}",
    )
