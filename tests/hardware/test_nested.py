from collections import OrderedDict, namedtuple
from dataclasses import dataclass, field

import pytest
import torch

from course_utils.hardware.gpu import leaves, map_leaves

Pair = namedtuple("Pair", ["pulses", "labels"])


@dataclass
class Plain:
    pulses: object
    name: str = "event"


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
    3,
    "name",
    None,
    {"pulses": 1, "ids": [2, 3]},
    OrderedDict(pulses=1),
    (1, (2,), []),
    Pair(1, [2]),
    Plain(1),
    Frozen(1),
    Checked(1),
    {"a": [Pair(Frozen(1), {"b": Plain(2)})]},
]


@pytest.mark.parametrize("batch", BATCHES, ids=repr)
def test_a_batch_keeps_its_shape(batch):
    assert map_leaves(lambda leaf: leaf, batch) == batch
    assert type(map_leaves(str, batch)) is (dict if isinstance(batch, dict) else type(batch)) or (
        type(map_leaves(str, batch)) is str
    )


@pytest.mark.parametrize("batch", BATCHES, ids=repr)
def test_leaves_are_what_is_mapped_in_the_same_order(batch):
    mapped = []
    map_leaves(mapped.append, batch)
    assert leaves(batch) == mapped


def test_a_frozen_dataclass_and_one_that_checks_its_fields_take_other_leaves():
    assert map_leaves(str, Frozen(1)).pulses == "1"
    assert map_leaves(str, Checked(1)).pulses == "1"


def test_the_batch_stays_as_it_was():
    batch = Plain(1)
    map_leaves(str, batch)
    assert batch == Plain(1)


def test_leaves_of_a_packed_sequence_are_its_tensors():
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)])
    assert [leaf is None for leaf in leaves(packed)] == [False, False, True, True]
