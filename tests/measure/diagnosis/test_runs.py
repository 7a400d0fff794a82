from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from course_utils.measure.diagnosis.runs import copy_s, weigh


@dataclass
class Batch:
    pulses: torch.Tensor
    name: str = "run 1"


@pytest.mark.parametrize(
    ("batch", "least"),
    [
        (torch.zeros(1000), 4000),
        ({"x": torch.zeros(1000), "y": [torch.zeros(10)]}, 4040),
        (Batch(torch.zeros(1000)), 4000),
        (np.zeros(1000), 8000),
        ((torch.zeros(1000), lambda: None), 4000),  # cannot be pickled
    ],
)
def test_a_batch_weighs_what_its_tensors_and_the_rest_do(batch: Any, least: int) -> None:
    tensors, nbytes, _ = weigh(batch)
    assert least <= nbytes < least + 2000
    assert not any(tensor.is_shared() for tensor in tensors)  # the batch stays as it was


def test_a_tree_of_dicts_costs_more_to_pickle_than_a_tensor_of_that_size() -> None:
    tree = [{"x": i, "y": 0.5 * i} for i in range(20_000)]
    cheap: Callable[[], float] = lambda: weigh(torch.zeros(40_000))[2]  # noqa: E731
    assert weigh(tree)[2] > 5 * min(cheap() for _ in range(3))


def test_more_bytes_take_longer_to_copy() -> None:
    cpu = torch.device("cpu")
    large, small = ([torch.zeros(count)] for count in (10_000_000, 10))
    assert copy_s(large, cpu) > 3 * copy_s(small, cpu) > 0
