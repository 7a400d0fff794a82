import math

import pytest
import torch

from course_utils.hardware.gpu import checksum
from course_utils.hardware.gpu.checksum import SAMPLE

DTYPES = [torch.bool, torch.uint8, torch.int16, torch.int64, torch.float16, torch.bfloat16]
DTYPES += [torch.float32, torch.float64, torch.complex64]


def one(tensor):
    return checksum([tensor]).item()


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type_has_a_checksum_that_tells_zeros_from_ones(dtype):
    zeros, ones = torch.zeros(5, dtype=dtype), torch.ones(5, dtype=dtype)
    assert 0 <= one(zeros) < 1
    assert 0 <= one(ones) < 1
    assert one(zeros) != one(ones)


def test_the_order_of_the_elements_and_of_the_tensors_matters():
    first, second = torch.arange(5), torch.arange(5).flip(0)
    assert one(first) != one(second)
    assert checksum([first, second]).item() != checksum([second, first]).item()


def test_it_is_nan_if_nan_is_among_the_elements():
    assert math.isnan(one(torch.tensor([1.0, torch.nan])))


def test_a_change_in_any_column_of_a_large_table_is_seen():
    table = torch.zeros(SAMPLE, 4)
    for column in range(4):
        changed = table.clone()
        changed[:, column] = 1
        assert one(changed) != one(table)


def test_memory_layout_does_not_matter():
    image = torch.randn(2, 3, 4, 4)
    assert one(image.contiguous(memory_format=torch.channels_last)) == one(image)


def test_empty_batches_and_scalars_have_one():
    assert checksum([]).item() == 0
    assert 0 <= one(torch.empty(0)) < 1
    assert 0 <= one(torch.tensor(3.0)) < 1
