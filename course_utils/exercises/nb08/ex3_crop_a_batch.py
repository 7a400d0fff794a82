"""Exercise 08.3: crops for a whole batch. Each pixel encodes its position."""

from collections.abc import Callable
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import torch
from torch import Tensor

from course_utils.exercises.judging.compare import Slip, compare, equal
from course_utils.exercises.judging.fake_gpu import expect_no_wait
from course_utils.exercises.judging.probes import expect_as_fast, one_thread, process_unchanged
from course_utils.stories.operations import count_operations
from course_utils.teaching.exercise import Verdict, exercise, expect, right

RandomCrops = Callable[[Tensor, int, torch.Generator], Tensor]

_INDEX = (
    "Index with images[samples, channels, rows, columns]. The shapes are (batch, 1, 1, 1), "
    "(channels, 1, 1), (batch, 1, size, 1) and (batch, 1, 1, size)."
)
_OFFSETS = "torch.randint(height - size + 1, (batch, 1, 1, 1), generator=generator), then width."
_PLACES, _CALLS = (7, 10), 1_500  # values of top and left, and how often they are drawn


class _Case(NamedTuple):
    """A batch of images, and the size of the windows."""

    batch: int
    channels: int
    height: int
    width: int
    size: int

    def images(self) -> Tensor:
        """Return uint8 images. A pixel has its row, its column, and the sum with its image."""
        row, column = torch.arange(self.height).view(-1, 1), torch.arange(self.width)
        number = torch.arange(self.batch).view(-1, 1, 1)
        whole = torch.zeros(self.batch, self.height, self.width, dtype=torch.long)
        parts = (row, column, row + column + number)[: self.channels]
        return torch.stack([whole + part for part in parts], 1).to(torch.uint8)

    def corners(self, crops: Any) -> tuple[Tensor, Tensor]:
        """Return the rows and columns of the first pixels, moved to where a window fits."""
        row = column = torch.zeros(self.batch, dtype=torch.long)
        if isinstance(crops, Tensor) and crops.shape == (*self[:2], self.size, self.size):
            row, column = crops[:, :2, 0, 0].long().T
        return row.clamp(max=self.height - self.size), column.clamp(max=self.width - self.size)

    def plain(self, crops: Any) -> Tensor:
        """Return the windows of the images that begin where the crops begin."""
        places = zip(self.images(), *(one.tolist() for one in self.corners(crops)), strict=True)
        windows = [i[:, y : y + self.size, x : x + self.size] for i, y, x in places]
        return torch.stack(windows)

    def __str__(self) -> str:
        images = f"{self.batch} images of {self.height} by {self.width} pixels"
        return f"{images} with {self.channels} channels, and size {self.size}"


CASES = (
    _Case(4, 3, 12, 20, 4),
    _Case(64, 3, 60, 30, 24),
    _Case(7, 3, 190, 20, 9),  # offsets above 127
    _Case(9, 2, 12, 12, 5),
    _Case(1, 2, 9, 9, 9),  # the window is the image
)
NO_WINDOW = Slip(
    lambda case, got, wanted: (
        isinstance(got, Tensor)
        and (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
        and not equal(got, wanted)
    ),
    "For {case}, a crop is not a window of its own image. Pixels come from another image or "
    "place, rows and columns are swapped, or channels are cut differently.",
    _INDEX,
)
OTHER_CROPS = Slip(
    lambda _, got, wanted: not equal(got, wanted),
    "The same state of the generator gives different crops, so the generator does not decide all "
    "offsets.",
    "Pass it to each call: torch.randint(..., generator=generator).",
)


@exercise("08.3", title="Random crops for a whole batch", seconds=60)
@one_thread()
def crop_a_batch(random_crops: RandomCrops) -> Verdict:
    """Check `random_crops(images, size, generator)` by the pixels that it takes."""
    _check_windows(random_crops)
    _check_draws(random_crops)
    _check_generator(random_crops)
    few = _count(random_crops, 4)
    many = _count(random_crops, 2_000)
    expect(
        many <= few,
        f"You need {few} torch operations for 4 images, but {many} for 2,000. You loop over "
        "the images. Each operation costs the host time, while the GPU waits.",
        _INDEX,
    )
    single = _Case(1, 3, 250, 250, 32)  # a copy of all windows would be large
    expect_no_wait(random_crops, single.images(), single.size, torch.Generator())
    expect_as_fast(
        lambda: random_crops(single.images(), single.size, torch.Generator()),
        lambda: single.plain(single.images()[..., :32, :32]),
    )
    return right(
        f"{few} operations, whatever the batch size. Each image has its own window, all windows "
        "are possible, and the generator repeats them."
    )


def _check_windows(random_crops: RandomCrops) -> None:
    for case in CASES:
        images, generator = case.images(), torch.Generator().manual_seed(1)
        for layout in images, images.contiguous(memory_format=torch.channels_last):
            with process_unchanged(layout):
                got = random_crops(layout, case.size, generator)
            known, plain = partial(lambda got, _: got, got), partial(_Case.plain, crops=got)
            compare(known, plain, [case], NO_WINDOW, show=str)


def _count(random_crops: RandomCrops, batch: int) -> int:
    images = _Case(batch, 3, 5, 6, 2).images()
    work, _ = count_operations(random_crops, images, 2, torch.Generator())
    return work.calls + work.views


def _check_draws(random_crops: RandomCrops) -> None:
    """Refuse offsets that are not independent and equally likely, in a batch and between calls."""
    case = _Case(3, 3, _PLACES[0] + 1, _PLACES[1] + 1, size=2)
    generator, images = torch.Generator().manual_seed(3), case.images()
    calls = (random_crops(images, case.size, generator) for _ in range(_CALLS))
    drawn = torch.stack([torch.cat(case.corners(crops)) for crops in calls])
    places = [count for count in _PLACES for _ in range(case.batch)]
    for count, offsets in zip(places, drawn.T, strict=True):
        counts = offsets.bincount(minlength=count)
        expect(
            _chi_squared(counts) < count + 40,
            f"The {count} places from 0 to {count - 1} must be equally likely, but come up "
            f"{counts.tolist()} times in {_CALLS:,} calls.",
            f"Do not seed the generator. torch.randint excludes its upper end: {_OFFSETS}",
        )
    columns = [*drawn[1:].T, *drawn[:-1].T]  # the call before is next to each call
    expect(
        all(
            _chi_squared((top * n + left).bincount(minlength=k * n)) < k * n + 100
            for (k, top), (n, left) in combinations(zip(places * 2, columns, strict=True), 2)
        ),
        "Some offsets depend on others: left on top, one call on the call before, or all images of "
        "a batch share an offset, as in torchvision. The model then sees less variety.",
        f"Draw each offset separately: {_OFFSETS}",
    )


def _chi_squared(counts: Tensor) -> float:
    expected = float(counts.double().mean())
    return float(((counts - expected) ** 2 / expected).sum())


def _check_generator(random_crops: RandomCrops) -> None:
    images, generator = _Case(8, 3, 60, 60, 20).images(), torch.Generator()
    states = [generator.manual_seed(seed).get_state() for seed in (5, 6)]

    def crops(state: Tensor) -> Tensor:
        return random_crops(images, 20, generator.set_state(state))

    compare(crops, lambda state: crops(state).clone(), states, OTHER_CROPS)
