import math
from collections import OrderedDict, namedtuple
from dataclasses import dataclass, field

import torch

from course_utils.hardware.gpu import checksum
from course_utils.hardware.gpu.loss import SAMPLE
from keepfed.batches import leaves, map_leaves

Pair = namedtuple("Pair", ["pulses", "labels"])


@dataclass(frozen=True, slots=True)
class Frozen:
    pulses: object
    count: int = field(init=False, default=1)


@dataclass
class Checked:
    pulses: object

    def __post_init__(self):
        assert isinstance(self.pulses, int), "made anew, with what it does not accept"


BATCHES = [
    "name",
    OrderedDict(pulses=1),
    {"a": ("text", None, [1], ())},
    {"a": [Pair(Frozen(1), {"b": Checked(2)})]},
    {"shape": torch.Size([2, 3])},
]


def test_batch_keeps_its_structure_its_type_and_the_order_of_its_leaves():
    for batch in BATCHES:
        mapped = []
        assert map_leaves(lambda leaf, mapped=mapped: mapped.append(leaf) or leaf, batch) == batch
        assert leaves(batch) == mapped
    for batch in (Frozen(1), Checked(1), Pair(1, 2)):
        changed = map_leaves(str, batch)
        assert type(changed) is type(batch)
        assert (batch.pulses, changed.pulses) == (1, "1")


DTYPES = [torch.bool, torch.uint8, torch.int16, torch.int64, torch.bfloat16, torch.float32]


def one(tensor):
    return checksum([tensor]).item()


def test_checksum_depends_on_values_and_order_but_not_on_layout():
    for dtype in [*DTYPES, torch.float64, torch.complex64]:
        zeros, ones = one(torch.zeros(5, dtype=dtype)), one(torch.ones(5, dtype=dtype))
        assert 0 <= min(zeros, ones) < max(zeros, ones) < 1, dtype
    first, second = torch.arange(5), torch.arange(5).flip(0)
    assert one(first) != one(second)
    assert checksum([first, second]).item() != checksum([second, first]).item()
    image = torch.randn(2, 3, 4, 4)
    assert one(image.contiguous(memory_format=torch.channels_last)) == one(image)
    table = torch.zeros(SAMPLE, 4)
    for column in range(4):
        changed = table.clone()
        changed[:, column] = 1
        assert one(changed) != one(table)
    assert math.isnan(one(torch.tensor([1.0, torch.nan])))
    assert checksum([]).item() == 0
    assert 0 <= one(torch.empty(0)) < 1
    assert 0 <= one(torch.tensor(3.0)) < 1
