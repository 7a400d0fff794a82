from collections.abc import Sequence

import pytest
import torch
import torchvision.transforms.v2.functional as one_by_one
from kornia import enhance
from kornia.augmentation import RandomResizedCrop
from torch import Tensor
from torchvision.transforms import v2

from course_utils.hardware.gpu import get_accelerator
from course_utils.loading.images import IMAGENET_MEAN, IMAGENET_STD, Augment, normalise, per_sample
from course_utils.loading.images.augment import (
    Crops,
    adjust,
    crop_resize,
    draw_crops,
    draw_factors,
    draw_flips,
    flip,
)

SIZES = [(5, 37, 53), (1, 64, 64), (3, 200, 31), (2, 9, 11)]  # samples, height, width


def _images(batch: int, height: int, width: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(256, (batch, 3, height, width), generator=generator)
    images[0, :, 0, 0], images[-1, :, -1, -1] = 0, 255
    return images.to(torch.uint8)


def _generator(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _window(crops: Crops, sample: int) -> list[int]:
    return [int(part[sample]) for part in (crops.top, crops.left, crops.height, crops.width)]


def _crops(*windows: Sequence[int]) -> Crops:
    return Crops(*torch.tensor(windows).T)


@pytest.mark.parametrize(("batch", "height", "width"), SIZES)
@pytest.mark.parametrize("size", [8, 33])
def test_a_resized_crop_is_that_of_torchvision(
    batch: int, height: int, width: int, size: int
) -> None:
    images = _images(batch, height, width)
    crops = draw_crops(batch, (height, width), generator=_generator())
    ours = crop_resize(images, crops, size)

    assert (ours.dtype, ours.shape) == (torch.float32, (batch, 3, size, size))
    for sample, image in enumerate(images):
        where = _window(crops, sample)
        of_floats = one_by_one.resized_crop(image.float(), *where, [size, size])
        torch.testing.assert_close(ours[sample], of_floats, rtol=0, atol=1e-3)
        of_bytes = one_by_one.resized_crop(image, *where, [size, size])
        torch.testing.assert_close(ours[sample], of_bytes.float(), rtol=0, atol=1.01)  # rounded


def test_a_window_of_the_size_asked_for_is_cut_out_as_it_is() -> None:
    images = _images(2, 40, 50)
    cut = crop_resize(images, _crops((0, 0, 16, 16), (24, 34, 16, 16)), 16)

    assert torch.equal(cut[0], images[0, :, :16, :16].float())
    assert torch.equal(cut[1], images[1, :, 24:, 34:].float())


def test_the_whole_image_can_be_the_window() -> None:
    images = _images(2, 24, 24)
    assert torch.equal(crop_resize(images, _crops(*[(0, 0, 24, 24)] * 2), 24), images.float())


def test_black_and_white_stay_black_and_white() -> None:
    images = torch.zeros(2, 3, 30, 20, dtype=torch.uint8)
    images[1] = 255
    scaled = crop_resize(images, draw_crops(2, (30, 20), generator=_generator()), 13)

    assert (scaled[0] == 0).all()
    torch.testing.assert_close(scaled[1], torch.full_like(scaled[1], 255.0))


def test_an_image_that_is_not_contiguous_gives_the_same() -> None:
    images = _images(3, 40, 30)
    channels_last = images.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    every_other = torch.stack([images, images], 1).flatten(0, 1)[::2]
    augment = Augment(size=16)
    draws = augment.draw(images.shape, generator=_generator())

    for other in (channels_last, every_other):
        torch.testing.assert_close(augment(other, draws), augment(images, draws))


def test_magnified_crops_are_those_of_kornia() -> None:
    torch.manual_seed(0)
    images = _images(5, 60, 80)
    # it has no antialias, which makes no difference to windows that are smaller than the result
    kornia = RandomResizedCrop((24, 24), (0.02, 0.1), cropping_mode="slice", align_corners=False)
    theirs = kornia(images.float())
    corners = kornia._params["src"].long()  # of each window, the last pixel included
    first, last = corners[:, 0], corners[:, 2]
    height, width = (last - first + 1).flip(1).T
    crops = Crops(first[:, 1], first[:, 0], height, width)

    assert max(height.max(), width.max()) <= 24
    torch.testing.assert_close(crop_resize(images, crops, 24), theirs, rtol=0, atol=1e-3)


def test_flips_are_those_of_torchvision_and_only_where_they_are_drawn() -> None:
    images = _images(4, 10, 12).float()
    flips = torch.tensor([True, False, True, False])
    flipped = flip(images, flips)

    assert torch.equal(flipped[flips], one_by_one.horizontal_flip(images[flips]))
    assert torch.equal(flipped[~flips], images[~flips])


def test_brightness_and_contrast_are_those_of_torchvision() -> None:
    images = _images(5, 21, 34).float() / 255
    brightness = torch.tensor([0.0, 0.6, 1.0, 1.4, 3.0])
    contrast = torch.tensor([1.0, 1.5, 0.0, 0.7, 2.0])
    ours = adjust(images, brightness, contrast)

    for sample, image in enumerate(images):
        bright = one_by_one.adjust_brightness(image, float(brightness[sample]))
        theirs = one_by_one.adjust_contrast(bright, float(contrast[sample]))
        torch.testing.assert_close(ours[sample], theirs, rtol=0, atol=1e-5)


def test_brightness_is_that_of_kornia_which_calls_it_accumulative() -> None:
    images = _images(3, 21, 34).float() / 255
    factors = torch.tensor([0.5, 1.0, 1.7])
    theirs = enhance.adjust_brightness_accumulative(images, factors)

    torch.testing.assert_close(adjust(images, factors, torch.ones(3)), theirs)


def test_contrast_is_that_of_kornia_with_the_mean_subtracted() -> None:
    images = _images(3, 21, 34).float() / 255
    factors = torch.tensor([0.5, 1.0, 1.7])
    theirs = enhance.adjust_contrast_with_mean_subtraction(images, factors)

    torch.testing.assert_close(adjust(images, torch.ones(3), factors), theirs, rtol=0, atol=1e-3)


def test_normalising_is_that_of_torchvision_and_of_kornia() -> None:
    images = _images(3, 8, 9).float() / 255
    ours = normalise(images)
    theirs = one_by_one.normalize(images, list(IMAGENET_MEAN), list(IMAGENET_STD))
    kornias = enhance.normalize(images, torch.tensor(IMAGENET_MEAN), torch.tensor(IMAGENET_STD))

    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(ours, kornias)


def test_every_sample_is_drawn_for_itself() -> None:
    draws = Augment(size=16).draw(torch.Size((256, 3, 40, 30)), generator=_generator())

    assert 90 < draws.flips.sum() < 166
    for part in (draws.brightness, draws.contrast):
        assert part.unique().numel() > 250
        assert part.min() >= 0.7
        assert part.max() <= 1.3
    windows = torch.stack([*vars(draws.crops).values()], 1)
    assert len(windows.unique(dim=0)) > 200


def test_the_same_generator_draws_the_same_and_the_next_epoch_something_else() -> None:
    augment, images = Augment(size=16), _images(4, 40, 30)
    one, same, other = (
        augment(images, augment.draw(images.shape, generator=_generator(seed)))
        for seed in (3, 3, 4)
    )

    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_a_batch_gives_what_its_samples_give_one_at_a_time() -> None:
    augment, images = Augment(size=20), _images(5, 40, 30)
    draws = augment.draw(images.shape, generator=_generator())
    batch = augment(images, draws)

    for sample in range(5):
        single = type(draws)(
            Crops(*(part[sample : sample + 1] for part in vars(draws.crops).values())),
            *(
                part[sample : sample + 1]
                for part in (draws.flips, draws.brightness, draws.contrast)
            ),
        )
        alone = augment(images[sample : sample + 1], single)
        torch.testing.assert_close(batch[sample : sample + 1], alone)


def test_windows_are_drawn_as_torchvision_draws_them() -> None:
    size, count = (60, 90), 4000
    crops = draw_crops(count, size, scale=(0.2, 0.8), generator=_generator())
    torch.manual_seed(0)
    image = torch.zeros(3, *size)
    theirs = torch.tensor(
        [
            v2.RandomResizedCrop(8, scale=(0.2, 0.8)).make_params([image])["height"]
            for _ in range(count)
        ],
        dtype=torch.float64,
    )

    assert (crops.top >= 0).all()
    assert (crops.left >= 0).all()
    assert (crops.top + crops.height <= size[0]).all()
    assert (crops.left + crops.width <= size[1]).all()
    ours = crops.height.double()
    for share in (0.1, 0.5, 0.9):
        assert abs(ours.quantile(share) - theirs.quantile(share)) <= 1.5


def test_where_no_window_fits_the_middle_is_taken() -> None:
    crops = draw_crops(3, (10, 100), scale=(1, 1), ratio=(1, 1), generator=_generator())
    assert [_window(crops, sample) for sample in range(3)] == [[0, 45, 10, 10]] * 3


def test_a_range_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"scale=\(0.5, 0.2\) is no range; give"):
        draw_crops(2, (8, 8), scale=(0.5, 0.2))


@pytest.mark.parametrize(
    "images",
    [torch.zeros(2, 3, 8, 8), torch.zeros(3, 8, 8, dtype=torch.uint8), _images(2, 8, 8)[:, :1]],
    ids=["floats", "one image", "one channel"],
)
def test_what_is_no_batch_of_decoded_images_is_refused(images: Tensor) -> None:
    with pytest.raises(ValueError, match="give a batch in uint8"):
        Augment(size=8)(images)


def test_without_draws_it_draws_itself() -> None:
    images = _images(2, 12, 12)
    torch.manual_seed(0)
    first, second = Augment(size=8)(images), Augment(size=8)(images)
    assert not torch.equal(first, second)


def test_it_runs_on_the_emulated_device() -> None:
    gpu = get_accelerator(emulate=True)
    augment, images = Augment(size=16), _images(4, 40, 30)
    draws = augment.draw(images.shape, generator=_generator())
    batch = gpu.launch(lambda on_device: augment(on_device, draws), gpu.upload(images), ms=0.1)

    torch.testing.assert_close(batch.cpu(), augment(images, draws))


def test_bytes_over_the_bus_are_a_quarter_of_floats() -> None:
    images = _images(4, 32, 32)
    assert 4 * images.nbytes == Augment(size=32)(images).nbytes


def test_the_flips_and_factors_are_drawn_as_asked_for() -> None:
    assert not draw_flips(50, 0.0).any()
    assert draw_flips(50, 1.0).all()
    assert (draw_factors(50, 0.0) == 1).all()
    assert (draw_factors(50, 5.0) >= 0).all()


def test_torchvision_with_one_image_at_a_time_does_the_same() -> None:
    augment = Augment(size=24, scale=(1, 1), ratio=(1, 1), flip_share=1.0, spread=0)
    image = _images(1, 24, 24)
    alone = per_sample(augment)(image[0])

    torch.testing.assert_close(alone[None], augment(image), rtol=0, atol=1e-5)


def test_torchvision_draws_one_set_of_parameters_for_a_batch() -> None:
    torch.manual_seed(0)
    image = _images(1, 64, 64)
    batch = v2.RandomResizedCrop(16)(image.expand(12, -1, -1, -1))
    ours = Augment(size=16)(image.expand(12, -1, -1, -1))

    assert len(batch.flatten(1).unique(dim=0)) == 1
    assert len(ours.flatten(1).unique(dim=0)) == 12


def test_half_precision_around_it_changes_no_value() -> None:
    images = _images(3, 40, 50)
    augment = Augment(size=16)
    draws = augment.draw(images.shape, generator=_generator())
    with torch.autocast("cpu", torch.bfloat16):
        found = augment(images, draws)
    assert torch.equal(found, augment(images, draws))
