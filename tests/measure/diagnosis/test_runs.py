from __future__ import annotations

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


def test_a_tree_of_dicts_costs_more_to_pickle_and_more_bytes_more_to_copy() -> None:
    tree = [{"x": i, "y": 0.5 * i} for i in range(20_000)]
    assert weigh(tree)[2] > 5 * min(weigh(torch.zeros(40_000))[2] for _ in range(3))
    large, small = ([torch.zeros(count)] for count in (10_000_000, 10))
    assert copy_s(large, torch.device("cpu")) > 3 * copy_s(small, torch.device("cpu")) > 0
