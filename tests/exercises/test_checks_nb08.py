"""The checks of notebook 08: other right answers pass, typical slips are named."""

from pathlib import Path

import pytest

from tests.exercises.solutions import Change, assert_refused, judge

CUT = "image[:, top : top + 224, left : left + 224]"
SCALE = "images = (images / 255 - mean) / std"
FLIP = "torch.where(flips.view(-1, 1, 1, 1), images.flip(-1), images)"
BY_INDEX = """\
images.gather(3, torch.where(
        flips[:, None], torch.arange(223, -1, -1, device=images.device),
        torch.arange(224, device=images.device),
    )[:, None, None].expand(-1, 3, 224, -1))"""
BY_MASK = "images[flips] = images[flips].flip(-1)\n    return images"


@pytest.mark.parametrize(
    "changes",
    [
        [(CUT, f"{CUT}.contiguous()"), (f"return {FLIP}", BY_MASK)],
        [(FLIP, BY_INDEX)],
    ],
)
def test_other_right_ways_to_split_pass(changes: list[Change], folder: Path) -> None:
    verdict = judge("08.1", folder, *changes)
    assert verdict.status == "right", verdict


@pytest.mark.parametrize(
    ("misconception", "old", "new"),
    [
        ("in_worker returns torch.float32: 602,112 bytes", CUT, f"{CUT} / 255"),
        ("in_worker returns torch.float32: 602,112 bytes", CUT, f"({CUT} / 255 - MEAN) / STD"),
        ("The whole frame crosses the bus: 196,608 bytes", CUT, "image"),
        (
            "writes 1,956,864 on the way",
            CUT,
            f"({CUT} / 255).mul(255).round().to(torch.uint8)",
        ),
        (
            "not the window with its corner at",
            CUT,
            "image[:, left : left + 224, top : top + 224]",
        ),
        ("not the window with its corner at", CUT, "image[:, :224, :224]"),
        ("not uint8 of (3, 224, 224)", CUT, "image[:, top : top + 192, left : left + 192]"),
        ("changes the image that it was given", CUT, CUT.replace("image", "image.add_(1)")),
        ("in_worker returns ndarray", CUT, f"{CUT}.numpy()"),
        (
            "it works on one image after the other",
            FLIP,
            "torch.stack([i.flip(-1) if f else i for i, f in zip(images, flips)])",
        ),
        (
            "on a GPU it would end with an error",
            "MEAN.to(images.device), STD.to(images.device)",
            "MEAN, STD",
        ),
        ("No image is flipped", FLIP, "images"),
        ("Every image is flipped", FLIP, "images.flip(-1)"),
        ("The values differ by up to", "flips.view", "(~flips).view"),
        ("upside down", "flip(-1)", "flip(-2)"),
        ("never scaled", "images / 255", "images.float()"),
        ("scaled but not normalised", SCALE, "images = images / 255"),
        ("nothing is divided by the standard deviation", "- mean) / std", "- mean)"),
        ("on_device returns torch.float16", FLIP, f"{FLIP}.half()"),
        ("on_device returns a tensor of (3, 224, 224)", FLIP, f"{FLIP}[0]"),
    ],
)
def test_a_wrong_split_is_explained(misconception: str, old: str, new: str, folder: Path) -> None:
    assert_refused(judge("08.1", folder, (old, new)), misconception)


CROPS = "images[samples, colours, top + window.view(-1, 1), left + window]"
RETURN = f"return {CROPS}"


def test_other_right_crops_pass(folder: Path) -> None:
    windows = "images.unfold(2, size, 1).unfold(3, size, 1)"
    chosen = "[torch.arange(batch), :, top.flatten(), left.flatten()]"
    verdict = judge("08.2", folder, (CROPS, windows + chosen))
    assert verdict.status == "right", verdict


@pytest.mark.parametrize(
    ("misconception", "old", "new"),
    [
        (
            "there is a loop over the samples",
            CROPS,
            "torch.stack([image[:, y : y + size, x : x + size] for image, y, x in "
            "zip(images, top.flatten().tolist(), left.flatten().tolist())])",
        ),
        (
            "All 64 samples are cut at the same place",
            CROPS,
            "images[:, :, int(top[0]) : int(top[0]) + size, int(left[0]) : int(left[0]) + size]",
        ),
        ("The offset of the rows is the same for all 64", "top + window", "top[:1] + window"),
        (
            "all windows lie on the diagonal",
            "left + window",
            "top.clamp(max=width - size) + window",
        ),
        (
            "reaches outside of an image of height 40 and width 40",
            "height - size + 1",
            "height - size + 2",
        ),
        ("of top, [3] never came up", "- size + 1", "- size"),
        (
            "reaches outside of an image of height 30 and width 60",
            "top + window.view(-1, 1), left + window",
            "left + window.view(-1, 1), top + window",
        ),
        ("Rows and columns are swapped", CROPS, f"{CROPS}.mT"),
        (
            "no window: its pixels are not neighbours",  # an offset for each row
            "randint(width - size + 1, place",
            "randint(width - size + 1, (batch, 1, size, 1)",
        ),
        ("Pixels of one sample end up in another", "images[", "images.roll(1, 0)["),
        ("The crops are torch.float32", CROPS, f"{CROPS} / 255"),
        ("does not come from the generator", ", generator=generator", ""),
        (
            "the augmentation is frozen",
            "place = batch",
            "generator = torch.Generator().manual_seed(0)\n    place = batch",
        ),
        (
            "The images themselves have changed",
            RETURN,
            f"crops = {CROPS}\n    images.zero_()\n    return crops",
        ),
        ("You return list, not a tensor", CROPS, f"list({CROPS})"),
    ],
)
def test_wrong_crops_are_explained(misconception: str, old: str, new: str, folder: Path) -> None:
    assert_refused(judge("08.2", folder, (old, new)), misconception)
