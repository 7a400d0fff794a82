"""Exercise 01.4: how often each class is drawn."""

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from course_utils.teaching.exercise import Verdict, exercise, expect, right
from course_utils.teaching.notebook import data_path
from keepfed.formatting import percent

_ONE_EACH = "Give every picture the weight of its class, in the order of images.targets."


@exercise("01.4", title="Find the class imbalance")
def balance_the_classes(counts: Mapping[str, int], weights: Sequence[float]) -> Verdict:
    """Judge the numbers of pictures by class, and a weight for each picture."""
    folders = sorted(path for path in data_path("images").iterdir() if path.is_dir())
    wanted = {folder.name: len(list(folder.glob("*.jpg"))) for folder in folders}
    _judge_counts(dict(counts) if hasattr(counts, "keys") else counts, wanted)
    expect(
        np.asarray(weights).dtype.kind in "fiu",
        "The sampler knows no classes and counts its weights: it wants one number for each "
        "picture, in a list as long as the dataset, no dict, no set and no generator.",
        _ONE_EACH,
    )
    _judge_weights(np.asarray(weights, dtype=float), wanted)
    rare = min(wanted, key=lambda name: wanted[name])
    total, drawn = sum(wanted.values()), sum(wanted.values()) / len(wanted)
    return right(
        f"Each class is drawn equally often. Only {wanted[rare]} of {total:,} pictures show "
        f"{rare}, so each of them is now drawn about {drawn / wanted[rare]:.0f} times an epoch: "
        "balanced, but not new."
    )


def _judge_counts(counts: Any, wanted: Mapping[str, int]) -> None:
    expect(
        isinstance(counts, Mapping)
        and all(isinstance(name, str) for name in counts)
        and all(isinstance(count, Integral) for count in counts.values()),
        "The counts are not a dict from the names of the classes to whole numbers, such as int().",
        "images.classes[target] is the name for a class number.",
    )
    total, found = sum(wanted.values()), sum(counts.values())
    expect(
        found >= total,
        f"You counted {found:,} of {total:,} pictures. ImageFolder sorts by class, so the first "
        "pictures are all of one class, and a part tells little about the whole.",
        "images.targets has the class number of every picture, and opens none.",
    )
    off = [name for name in wanted if counts.get(name) != wanted[name]]
    expect(
        not off and len(counts) == len(wanted),
        f"The count is off for {', '.join(off) or 'a class that is not there'}.",
        "Counter(images.targets) counts class numbers; images.classes has the names.",
    )


def _judge_weights(weights: NDArray[np.float64], wanted: Mapping[str, int]) -> None:
    names, sizes = list(wanted), np.array(list(wanted.values()))
    expect(
        weights.shape != sizes.shape,
        f"These are {len(sizes)} weights, one for each class. The sampler takes them for the first "
        f"{len(sizes)} pictures and draws only those, all of class {names[0]}.",
        _ONE_EACH,
    )
    expect(
        weights.shape == (sizes.sum(),),
        f"The weights have the shape {weights.shape}; there are {sizes.sum():,} pictures.",
        "Make a list with one weight for each entry of images.targets.",
    )
    expect(
        np.isfinite(weights).all() and (weights >= 0).all() and weights.any(),
        "Weights are chances: none may be negative or infinite, and not all may be 0.",
        "A picture of a class of n gets the weight 1/n.",
    )
    starts = np.cumsum([0, *sizes[:-1]])
    lightest, heaviest = (how.reduceat(weights, starts) for how in (np.minimum, np.maximum))
    expect(
        np.allclose(lightest, heaviest, rtol=0.01, atol=0),
        "Pictures of one class weigh differently, so some of them are drawn less often than "
        "others, or never.",
        _ONE_EACH,
    )
    sums = np.add.reduceat(weights, starts)
    shares = sums / sums.sum()
    expect(
        not np.allclose(shares, sizes / sizes.sum(), rtol=0.01),
        "All pictures weigh the same, so the classes are drawn as often as they occur.",
        "A picture of a class of n gets the weight 1/n.",
    )
    expect(
        shares[sizes.argmin()] > sizes.min() / sizes.sum(),
        "Common classes weigh more: rare pictures are drawn even less often than before.",
        "Divide by the count instead of multiplying by it.",
    )
    expect(
        np.allclose(shares, 1 / len(sizes), rtol=0.01),
        f"A picture that is drawn is of class {names[shares.argmax()]} in {percent(shares.max())} "
        f"of the cases, and of class {names[shares.argmin()]} in {percent(shares.min())}.",
        "The weights of the pictures of one class must add up to the same for every class.",
    )
