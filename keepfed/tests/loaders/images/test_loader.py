import threading
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from keepfed.loaders.contract import WorkerSlot
from keepfed.loaders.images import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    CenterCrop,
    Crops,
    ImageLoader,
    Jpegs,
    PackedImages,
    decoding,
)

N = 40


def numbers(loader: Iterable[dict[str, Tensor]]) -> list[list[int]]:
    return [batch["index"].tolist() for batch in loader]


def pixels(loader: ImageLoader) -> dict[int, Tensor]:
    return {
        index: image.clone()
        for batch in loader
        for index, image in zip(batch["index"].tolist(), batch["images"], strict=True)
    }


@pytest.mark.slow
def test_whole_crops_equal_torchvision(photos: Path, packed: Path, one_by_one: ModuleType) -> None:
    files, size = Jpegs(photos), 160  # all sides have less than 320 pixels
    loader = ImageLoader(packed, 7, size, dtype="uint8")
    windows, flips = loader.draw(range(N))
    assert 5 < flips.sum() < 35
    for index, ours in pixels(loader).items():
        theirs = one_by_one.resized_crop(files[index][0], *windows[index].tolist(), [size, size])
        theirs = one_by_one.horizontal_flip(theirs) if flips[index] else theirs
        assert ours.equal(theirs), index


def test_small_crops_differ_by_under_a_level(
    photos: Path, packed: Path, one_by_one: ModuleType
) -> None:
    files, size, changes, antialiasing = Jpegs(photos), 24, [], []
    loader = ImageLoader(packed, 16, size, dtype="uint8")
    windows, flips = loader.draw(range(N))
    for index, ours in pixels(loader).items():
        if windows[index, 2:].min() >= 2 * size:
            where, image = windows[index].tolist(), files[index][0]
            ours = ours.flip(-1) if flips[index] else ours
            theirs, rough = (
                one_by_one.resized_crop(image, *where, [size] * 2, antialias=antialias).float()
                for antialias in (True, False)
            )
            changes.append((ours - theirs).abs().mean())
            antialiasing.append((rough - theirs).abs().mean())
    assert len(changes) > 15
    assert torch.stack(changes).mean() < 1.2
    assert torch.stack(changes).mean() < torch.stack(antialiasing).mean() / 3


@pytest.mark.slow
def test_validation_in_file_order_has_the_centers_of_torchvision(
    photos: Path, packed: Path, one_by_one: ModuleType
) -> None:
    files = Jpegs(photos)
    for size, share in (160, 1), (150, 0.875), (24, 0.875):
        crops = CenterCrop(share=share)
        loader = ImageLoader(packed, 7, size, dtype="uint8", shuffle=False, crops=crops)
        found = pixels(loader)
        assert list(found) == list(range(N))
        windows, _ = loader.draw(range(N))
        for index, ours in found.items():
            image = files[index][0]
            side = round(share * min(image.shape[1:]))
            center = one_by_one.center_crop(image, [side, side])
            if side < 2 * size:
                assert ours.equal(one_by_one.resize(center, [size, size])), (size, share, index)
            else:  # decoded smaller
                theirs = one_by_one.resized_crop(image, *windows[index].tolist(), [size, size])
                assert (ours.float() - theirs).abs().mean() < 3, (size, share, index)
                assert abs(windows[index, 2] - side) < 8


def test_batch_has_the_label_of_each_image(packed: Path) -> None:
    labels = PackedImages(packed).table["label"]
    for batch in ImageLoader(packed, 7, 8, dtype="uint8", drop_last=True):
        assert batch["images"].shape == (7, 3, 8, 8)
        assert batch["labels"].tolist() == labels[batch["index"]].tolist()


def test_order_and_crops_depend_only_on_seed_and_epoch(packed: Path) -> None:
    def epoch(number: int, **options: Any) -> ImageLoader:
        loader = ImageLoader(packed, 8, 16, dtype="uint8", **options)
        loader.set_epoch(number)
        return loader

    usual, order = pixels(epoch(3, seed=1)), numbers(epoch(3, seed=1))
    for rank in range(2):
        part = epoch(3, seed=1, slot=WorkerSlot(rank, 2), threads=3)
        assert all(torch.equal(image, usual[index]) for index, image in pixels(part).items())
    assert numbers(epoch(3, seed=1, threads=1)) == order
    for other in epoch(4, seed=1), epoch(3, seed=2):
        assert numbers(other) != order
        assert not all(torch.equal(image, usual[i]) for i, image in pixels(other).items())


def test_float_images_are_normalized_bytes_with_adjacent_colors(packed: Path) -> None:
    raw, ready = (ImageLoader(packed, 16, 150, dtype=dtype) for dtype in ("uint8", "float32"))
    mean, std = (torch.tensor(x)[:, None, None] for x in (IMAGENET_MEAN, IMAGENET_STD))
    for ours, of_bytes in zip(ready, raw, strict=True):
        for batch in (ours, of_bytes):
            assert batch["images"].is_contiguous(memory_format=torch.channels_last)
            assert {part.is_pinned() for part in batch.values()} == {torch.cuda.is_available()}
        expected = (of_bytes["images"].float() / 255 - mean) / std
        torch.testing.assert_close(ours["images"], expected, rtol=0, atol=1e-5)


def test_threads_of_torch_are_restored(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, before, write = list[int](), torch.get_num_threads(), decoding.Decoder.write

    def written(*args: Any) -> None:
        asked.append(torch.get_num_threads())
        write(*args)

    monkeypatch.setattr(decoding.Decoder, "write", written)
    assert sum(map(len, numbers(ImageLoader(packed, 8, 8, threads=2)))) == N
    assert asked == [1] * N
    assert torch.get_num_threads() == before


def test_batch_is_valid_until_its_memory_is_reused(packed: Path) -> None:
    for buffers in (1, 3):
        loader, held, places = ImageLoader(packed, 2, 8, buffers=buffers), list[Any](), set[int]()
        for _ in range(2):  # including the end of an epoch
            for batch in loader:
                places.add(batch["images"].data_ptr())
                held = [*held, (batch["images"], batch["images"].clone())][-buffers:]
                for kept, expected in held:
                    assert torch.equal(kept, expected)
        assert len(places) == buffers + 2
    last = next(iter(loader))["images"]  # the loop does not end
    before = last.clone()
    list(loader)
    assert torch.equal(last, before)


def test_unreadable_image_is_named_in_the_loop(packed: Path, tmp_path: Path) -> None:
    content = bytearray(packed.read_bytes())
    content[PackedImages(packed).table["where"][11] + 200] ^= 255
    (tmp_path / "changed").write_bytes(content)
    with pytest.raises(OSError, match=r"changed, sample 11: its checksum is wrong"):
        numbers(ImageLoader(tmp_path / "changed", 4, 8))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("images")]


def test_invalid_arguments_are_rejected(packed: Path) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"size": 0}, "`size` must be at least 1, but is 0"),
        ({"threads": 0}, "`threads` must be at least 1"),
        ({"buffers": 0}, "`buffers` must be at least 1"),
        ({"dtype": "float16"}, '`dtype` must be "float32" or "uint8"'),
        ({"batch_size": 0}, "`batch_size` must be at least 1"),
        ({"crops": Crops(scale=(0, 1))}, r"`scale` is \(0, 1\), but must satisfy 0 < low"),
    ]
    for options, message in cases:
        with pytest.raises(ValueError, match=message):
            ImageLoader(packed, **options).draw([0])


def test_crops_may_be_the_complete_image_without_flips(photos: Path, packed: Path) -> None:
    crops = Crops(scale=(1, 1), ratio=(1, 1), flip_share=0)
    windows, flips = ImageLoader(packed, 4, 200, crops=crops).draw(range(N))
    for (top, left, height, width), (image, _) in zip(windows, Jpegs(photos), strict=False):
        assert height == width == min(image.shape[1:])
        assert (top, left) == ((image.shape[1] - height) // 2, (image.shape[2] - width) // 2)
    assert not flips.any()
