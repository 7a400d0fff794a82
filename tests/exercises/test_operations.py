import torch

from notebooks.stories.operations import count_operations


def test_what_computes_is_counted_with_what_it_writes() -> None:
    counted, result = count_operations(lambda x: x + 1, torch.zeros(10, dtype=torch.int64))
    assert (counted.calls, counted.views, counted.bytes_written) == (1, 0, 80)
    assert result.tolist() == [1] * 10


def test_a_view_writes_nothing() -> None:
    counted, _ = count_operations(lambda x: x[2:5].view(3, 1), torch.zeros(10))
    assert (counted.calls, counted.bytes_written) == (0, 0)
    assert counted.views == 2


def test_writing_in_place_counts_too() -> None:
    counted, _ = count_operations(lambda x: x.zero_(), torch.ones(4))
    assert (counted.calls, counted.bytes_written) == (1, 16)


def test_it_says_both() -> None:
    counted, _ = count_operations(torch.zeros, 500)
    assert str(counted) == "1 operations, 2,000 bytes written"
