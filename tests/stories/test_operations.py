import torch

from course_utils.stories.operations import count_operations


def test_operations_count_written_bytes_but_not_views() -> None:
    counted, result = count_operations(lambda x: x + 1, torch.zeros(10, dtype=torch.int64))
    assert (counted.calls, counted.views, counted.bytes_written) == (1, 0, 80)
    assert result.tolist() == [1] * 10
    counted, _ = count_operations(lambda x: x[2:5].view(3, 1), torch.zeros(10))
    assert (counted.calls, counted.views, counted.bytes_written) == (0, 2, 0)
    counted, _ = count_operations(lambda x: x.zero_(), torch.ones(4))  # in place
    assert (counted.calls, counted.bytes_written) == (1, 16)
