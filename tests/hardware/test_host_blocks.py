import pytest
import torch

from course_utils.hardware.gpu.host_blocks import HostBlocks


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.bfloat16, torch.complex64])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 5)])
def test_a_copy_is_equal_and_on_its_own(dtype, shape):
    source = torch.ones(shape, dtype=dtype)
    copy = HostBlocks().copy(source)
    assert torch.equal(copy, source)
    source.zero_()
    assert copy.all()


def test_memory_given_back_is_used_again_for_a_somewhat_smaller_copy():
    blocks = HostBlocks()
    first = blocks.copy(torch.ones(100))
    address = first.data_ptr()
    blocks.give_back(first)
    again = blocks.copy(torch.zeros(60, dtype=torch.int32))
    assert again.data_ptr() == address
    assert again.tolist() == [0] * 60


@pytest.mark.parametrize("size", [101, 49])
def test_memory_is_not_used_for_more_than_it_holds_nor_for_less_than_half(size):
    blocks = HostBlocks()
    first = blocks.copy(torch.ones(100))
    blocks.give_back(first)
    assert blocks.copy(torch.ones(size)).data_ptr() != first.data_ptr()


def test_it_does_not_hoard():
    blocks = HostBlocks(keep=2)
    for copy in [blocks.copy(torch.ones(10)) for _ in range(5)]:
        blocks.give_back(copy)
    blocks.copy(torch.ones(100))
    assert len(blocks._spare) == 2


def test_a_column_of_a_table_is_copied_like_any_other_tensor() -> None:
    table = torch.arange(12, dtype=torch.float32).view(4, 3)
    copy = HostBlocks().copy(table[:, 1])
    assert copy.tolist() == [1, 4, 7, 10]
