"""Batches of objects from other packages are copied and protected, and keep their type."""

import math
from collections import OrderedDict, UserDict, defaultdict
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch

from course_utils.hardware.gpu import checksum, mark_pinned
from keepfed import batches
from keepfed.batches import leaves, move, tensors
from keepfed.loaders.prefetch import CudaPrefetcher
from keepfed.loaders.ragged import Ragged
from tests.hardware.fake_device import fake_device


def geometric(number=0.0):
    data = pytest.importorskip("torch_geometric.data")
    edges = torch.tensor([[0, 1], [1, 0]])
    graphs = [data.Data(x=torch.full((2, 8), number + n), edge_index=edges) for n in range(2)]
    return data.Batch.from_data_list(graphs)


def tensordict(number=0.0):
    package = pytest.importorskip("tensordict")
    values = {"pulses": torch.full((4, 3), number), "nested": {"time": torch.arange(4)}}
    return package.TensorDict(values, batch_size=[4], device="cpu")


def encoding(number=0.0):
    package = pytest.importorskip("transformers")
    return package.BatchEncoding({"input_ids": torch.full((2, 5), int(number)), "name": "event"})


class Dgl:
    """Interface of a DGLGraph: `to` returns a new graph, and `record_stream` exists."""

    def __init__(self, frames):
        self.frames = frames

    def to(self, device, **kwargs):
        frames = {name: frame.to(device, **kwargs) for name, frame in self.frames.items()}
        return type(self)(frames)

    def pin_memory_(self):
        raise NotImplementedError

    def record_stream(self, stream):
        for frame in self.frames.values():
            frame.record_stream(stream)


class Instances:
    """Interface of detectron2's Instances: `to` forwards its arguments, no `record_stream`."""

    def __init__(self, **fields):
        self._image_size, self._fields = (4, 4), fields

    def to(self, *args, **kwargs):
        moved = {name: value.to(*args, **kwargs) for name, value in self._fields.items()}
        return Instances(**moved)


OBJECTS = [
    lambda number: Ragged.join([torch.full((rows, 3), number) for rows in (2, 1)]),
    lambda number: Dgl({"x": torch.full((3,), number)}),
    lambda number: Instances(boxes=torch.full((3, 4), number)),
    *(tensordict, encoding, pytest.param(geometric, marks=pytest.mark.full)),
]


@pytest.mark.parametrize("make", OBJECTS)
def test_objects_are_copied_pinned_and_protected_even_if_the_loop_drops_them(make):
    gpu, _ = fake_device()
    batch, wanted = make(3.0), checksum(tensors(make(3.0))).item()
    assert len(tensors(batch)) > 0
    uploaded = gpu.upload(batch)
    assert type(uploaded) is type(batch)
    assert gpu.step(uploaded).item() == wanted
    pinned = gpu.pin(batch)
    assert type(pinned) is type(batch)
    assert (gpu.is_pinned(pinned), gpu.is_pinned(batch)) == (True, False)
    with gpu.stream(gpu.Stream()):
        early = gpu.upload(pinned, non_blocking=True)
    assert math.isnan(gpu.step(early).item())  # nothing waits for the copy
    moved = move(batch, torch.device("meta"), non_blocking=True)
    assert type(moved) is type(batch)
    assert {tensor.device.type for tensor in tensors(moved)} == {"meta"}
    assert {tensor.device.type for tensor in tensors(batch)} == {"cpu"}
    assert checksum(tensors(batch)).item() == wanted
    hosts, losses = [make(float(number)) for number in range(6)], []
    for dropped in CudaPrefetcher([gpu.pin(host) for host in hosts], gpu):
        losses.append(gpu.step(dropped))
        del dropped
    right = [checksum(tensors(host)).item() for host in hosts]
    assert [loss.item() for loss in losses] == right


def test_mappings_keep_their_type_and_attributes():
    class Marked(UserDict):
        pass

    marked = Marked(a=torch.ones(1))
    marked.source = "run 7"
    for batch in (marked, OrderedDict(a=torch.ones(1)), defaultdict(list, a=torch.ones(1))):
        moved = move(batch, torch.device("meta"))
        assert (type(moved), moved["a"].device.type) == (type(batch), "meta")
        assert batch["a"].device.type == "cpu"
        assert getattr(moved, "source", None) == getattr(batch, "source", None)
        assert getattr(moved, "default_factory", None) == getattr(batch, "default_factory", None)


def test_objects_without_tensors_pass_unchanged():
    class Quantity:
        to = Mock(side_effect=ValueError("no unit"))

    batch = ["event", 7, None, Path("x"), Quantity(), {1, 2}, SimpleNamespace(a=1), Path, len]
    assert move(batch, torch.device("meta"), non_blocking=True) == batch
    assert fake_device()[0].upload(batch) == batch


def test_method_without_non_blocking_is_called_without_it():
    class Graph:
        def __init__(self, x):
            self.x = x

        def to(self, device):
            return Graph(self.x.to(device))

    assert move(Graph(torch.ones(2)), torch.device("meta")).x.is_meta


def test_object_with_unknown_tensors_is_rejected():
    class Opaque:
        __slots__ = ()

        def to(self, device, non_blocking=False):
            return self

        def pin_memory(self):
            return self

    with pytest.raises(TypeError, match=r"Opaque, because .* record_stream\(stream\)"):
        list(CudaPrefetcher([Opaque()], fake_device()[0]))


@pytest.mark.filterwarnings("ignore:Sparse CS. tensor support is in beta:UserWarning")
def test_sparse_and_jagged_tensors_have_dense_parts():
    jagged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    eye = torch.eye(3)
    for sparse in (eye.to_sparse(), eye.to_sparse_csr(), eye.to_sparse_csc(), jagged):
        parts = batches.dense_parts(sparse)
        assert len(parts) >= 2
        assert all(part.layout == torch.strided for part in parts)
        with pytest.raises(TypeError, match="emulated device copies only dense tensors"):
            list(CudaPrefetcher([{"a": sparse}], fake_device()[0]))


def test_movable_object_inside_containers_is_found():
    gpu, _ = fake_device()
    boxes = Instances(boxes=torch.zeros(3, 4))
    uploaded = gpu.upload({"graphs": [(boxes, 1), mark_pinned(torch.ones(2))]})
    assert [type(leaf).__name__ for leaf in leaves(uploaded)].count("DeviceTensor") == 2
