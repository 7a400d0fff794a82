from types import ModuleType

import pytest
import torch
from torch import Tensor

from course_utils.hardware.gpu import get_accelerator
from course_utils.loading.images import Augment, normalize, per_sample
from course_utils.loading.images.augment import AugmentParams, adjust, crop_resize, flip
from keepfed.loaders.images import IMAGENET_MEAN, IMAGENET_STD


def _images(batch: int, height: int, width: int) -> Tensor:
    images = torch.randint(256, (batch, 3, height, width), generator=_generator(0))
    images[0, :, 0, 0], images[-1, :, -1, -1] = 0, 255
    return images.to(torch.uint8)


def _generator(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_resized_crop_equals_torchvision(one_by_one: ModuleType) -> None:
    for batch, height, width, size in ((5, 37, 53, 33), (3, 200, 31, 8), (2, 9, 11, 33)):
        images = _images(batch, height, width)
        windows = Augment().draw(images.shape, generator=_generator()).windows
        windows[0] = torch.tensor([1, 0, 8, 8])  # not scaled if size is 8
        ours = crop_resize(images, windows, size)
        assert (ours.dtype, ours.shape) == (torch.float32, (batch, 3, size, size))
        for sample, image in enumerate(images):
            where = windows[sample].tolist()
            theirs = one_by_one.resized_crop(image.float(), *where, [size, size])
            torch.testing.assert_close(ours[sample], theirs, rtol=0, atol=1e-3)


def test_flip_brightness_contrast_and_norm_equal_torchvision(one_by_one: ModuleType) -> None:
    images = _images(5, 21, 34).float() / 255
    flips = torch.tensor([True, False, True, False, False])
    brightness = torch.tensor([0.0, 0.6, 1.0, 1.4, 3.0])
    contrast = torch.tensor([1.0, 1.5, 0.0, 0.7, 2.0])
    ours = normalize(adjust(flip(images, flips), brightness, contrast))
    for sample, image in enumerate(images):
        flipped = one_by_one.horizontal_flip(image) if flips[sample] else image
        bright = one_by_one.adjust_brightness(flipped, float(brightness[sample]))
        theirs = one_by_one.adjust_contrast(bright, float(contrast[sample]))
        theirs = one_by_one.normalize(theirs, list(IMAGENET_MEAN), list(IMAGENET_STD))
        torch.testing.assert_close(ours[sample], theirs, rtol=0, atol=5e-5)


def test_every_sample_gets_its_own_parameters_in_range() -> None:
    draws = Augment(size=16).draw(torch.Size((256, 3, 40, 30)), generator=_generator())
    assert 90 < draws.flips.sum() < 166
    assert len(draws.windows.unique(dim=0)) > 200
    for part in (draws.brightness, draws.contrast):
        assert part.unique().numel() > 250
        assert 0.7 <= part.min() < 0.75 < 1.25 < part.max() <= 1.3
    still = Augment(flip_share=0, spread=0).draw(torch.Size((50, 3, 8, 8)))
    assert not still.flips.any()
    assert (still.brightness == 1).all()


def test_windows_have_the_distribution_of_torchvision() -> None:
    from torchvision.transforms import v2

    size, count = (60, 90), 2000
    draw = Augment(scale=(0.2, 0.8)).draw
    top, left, height, width = draw((count, 3, *size), generator=_generator()).windows.T
    torch.manual_seed(0)
    theirs, image = v2.RandomResizedCrop(8, scale=(0.2, 0.8)), torch.zeros(3, *size)
    heights = torch.tensor([theirs.make_params([image])["height"] for _ in range(count)])
    assert min(top.min(), left.min()) >= 0
    assert (top + height <= size[0]).all()
    assert (left + width <= size[1]).all()
    for share in (0.1, 0.5, 0.9):
        ours, wanted = height.double().quantile(share), heights.double().quantile(share)
        assert abs(ours - wanted) <= 2
    whole = Augment(scale=(1, 1), ratio=(1, 1)).draw((2, 3, 10, 100))
    assert whole.windows.tolist() == [[0, 45, 10, 10]] * 2  # none fits
    with pytest.raises(ValueError, match=r"`scale` is \(0.5, 0.2\), but must satisfy"):
        Augment(scale=(0.5, 0.2)).draw((2, 3, 8, 8))


def test_same_parameters_give_the_same_result_on_any_device() -> None:
    augment, images = Augment(size=16), _images(5, 40, 30)
    draws = augment.draw(images.shape, generator=_generator())
    batch, gpu = augment(images, draws), get_accelerator(emulate=True)
    assert batch.nbytes == 5 * 3 * 16 * 16 * 4  # float32
    assert not torch.equal(augment(images), augment(images))  # new parameters are drawn
    channels_last = images.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    torch.testing.assert_close(augment(channels_last, draws), batch)
    on_device = gpu.launch(lambda there: augment(there, draws), gpu.upload(images), ms=0.1)
    torch.testing.assert_close(on_device.cpu(), batch)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(augment(images, draws), batch)
    for one in (slice(sample, sample + 1) for sample in range(5)):
        alone = AugmentParams(*(part[one] for part in vars(draws).values()))
        torch.testing.assert_close(augment(images[one], alone), batch[one])


def test_per_sample_equals_torchvision_and_other_batches_are_rejected() -> None:
    certain = Augment(size=24, scale=(1, 1), ratio=(1, 1), flip_share=1.0, spread=0)
    image = _images(1, 24, 24)
    alone = per_sample(certain)(image[0])[None]
    torch.testing.assert_close(alone, certain(image), rtol=0, atol=1e-5)
    for wrong in (image.float(), image[0], image[:, :1]):
        with pytest.raises(ValueError, match="Pass a uint8 batch"):
            certain(wrong)


def test_only_copies_to_cuda_are_non_blocking(monkeypatch: pytest.MonkeyPatch) -> None:
    copies = []

    def copy(tensor: Tensor, device: str, *, non_blocking: bool) -> Tensor:
        copies.append(non_blocking)
        return tensor

    draws = Augment(size=8).draw((2, 3, 16, 16))
    monkeypatch.setattr(Tensor, "to", copy)
    monkeypatch.setattr(Tensor, "pin_memory", lambda tensor: tensor)
    for device in ("cuda", "mps"):
        copies.clear()
        draws.to(device)
        assert copies == [device == "cuda"] * 4
