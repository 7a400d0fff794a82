"""The contract of all loaders: rank, epoch, state, length and end, one test for each rule."""

import json
import multiprocessing
import os
import shutil
import threading
import warnings
from itertools import chain, islice, product
from pathlib import Path
from typing import Any

import pytest
import torch

from course_utils.loading.events import MemmapEvents, pad_collate
from course_utils.loading.images import Augment
from keepfed.loaders.cache import SampleCache
from keepfed.loaders.contract import EpochLoader, WorkerSlot
from keepfed.loaders.workers import SharedEpoch
from tests.loaders.ranks import set_rank, start_server
from tests.loading.loaders import KINDS, Kind, N, prepare

EVENTS = 600
WITH_POSITION = {name: kind for name, kind in KINDS.items() if kind.has_position}


@pytest.fixture(scope="module")
def folder(events_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with small data for all kinds. Do not write to it."""
    path = tmp_path_factory.mktemp("loaders")
    prepare(path, events_folder)
    return path


def batches(kind: Kind, loader: EpochLoader, *, follow: bool = True) -> list[list[int]]:
    loop: Any = kind.load(loader)
    return [kind.ids(batch) for batch in (loader.follow(loop) if follow else loop)]


def epoch(kind: Kind, loader: EpochLoader, number: int) -> list[int]:
    loader.set_epoch(number)
    return [*chain(*batches(kind, loader))]


def test_ranks_together_serve_every_sample_once(folder: Path) -> None:
    for (name, kind), ranks in product(KINDS.items(), (1, 2, 3)):
        served, lengths = [], []
        for rank in range(ranks):
            loader: Any = kind.make(folder, slot=WorkerSlot(rank, ranks))
            lengths.append(len(loader))
            own = batches(kind, loader)
            expected = len(own) if kind.has_position else sum(map(len, own))
            assert lengths[-1] == expected, name
            served += chain(*own)
        assert len(set(served)) == len(served), name
        if kind.is_stream:
            assert len(served) == EVENTS, name
        else:
            assert N - ranks < len(served) <= N, name
            assert len(set(lengths)) == 1, name


def test_rank_is_read_when_a_loop_starts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, kind in KINDS.items():
        loader: Any = kind.make(folder)
        for rank in range(2):
            set_rank(monkeypatch, rank, 2)
            loader.set_epoch(0)
            explicit: Any = kind.make(folder, slot=WorkerSlot(rank, 2))
            assert len(loader) == len(explicit), name
            assert epoch(kind, loader, 0) == epoch(kind, explicit, 0), name
        other = kind.make(folder, slot=WorkerSlot(0, 2))
        assert epoch(kind, other, 0) != epoch(kind, explicit, 0), name


def test_seed_and_epoch_determine_the_order(folder: Path) -> None:
    for name, kind in KINDS.items():
        loader = kind.make(folder)
        orders = [[*chain(*batches(kind, loader))] for _ in range(2)]
        assert loader.epoch.value == 2, name  # `follow` advances
        again = [epoch(kind, loader, number) for number in (0, 1, 0)]
        assert again == [*orders, orders[0]], name
        assert orders[0] == epoch(kind, kind.make(folder), 0), name
        assert orders[0] != orders[1], name
        assert sorted(orders[0]) == sorted(orders[1]), name
        assert epoch(kind, kind.make(folder, seed=1), 0) != orders[0], name


def test_plain_loops_advance_or_warn_once_on_rank_0(folder: Path) -> None:
    for (name, kind), rank in product(KINDS.items(), (0, 1)):
        loader = kind.make(folder, slot=WorkerSlot(rank, 2))
        orders = [batches(kind, loader, follow=False)]
        for _ in range(2):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                orders.append(batches(kind, loader, follow=False))
            said = [str(warning.message) for warning in caught]
            warns = not kind.follows_itself and len(orders) == 2 and rank == 0
            assert len(said) == warns, name
            assert all("Call set_epoch before each loop, or loop over" in text for text in said)
        assert (orders[0] == orders[1] == orders[2]) != kind.follows_itself, name
        loader.set_epoch(5)
        batches(kind, loader, follow=False)


def test_state_resumes_with_other_ranks_and_batches(folder: Path) -> None:
    for (name, kind), steps in product(WITH_POSITION.items(), (1, 3, 5)):
        jobs = [kind.make(folder, slot=WorkerSlot(rank, 2), batch_size=4) for rank in range(2)]
        loops = [job.follow(kind.load(job)) for job in jobs]
        served = [kind.ids(batch) for loop in loops for batch in islice(loop, steps)]
        state = jobs[0].state_dict()
        assert state == jobs[1].state_dict(), name
        state = json.loads(json.dumps(state))  # the state consists of plain values
        resumed: Any = kind.make(folder, batch_size=5)
        resumed.load_state_dict(state)
        resumed.set_epoch(state["epoch"])  # scripts call this before each loop
        length = len(resumed)
        rest = batches(kind, resumed)
        assert len(rest) == length, name
        assert resumed.state_dict()["epoch"] == 1
        every = [*chain(*served, *rest)]
        assert len(set(every)) == len(every) == N, name
        jobs[0].load_state_dict(state)
        jobs[0].set_epoch(1)  # a different epoch starts at its first sample
        assert sum(map(len, batches(kind, jobs[0]))) == N // 2, name


def test_state_without_position_repeats_the_epoch(folder: Path) -> None:
    for name in KINDS.keys() - WITH_POSITION.keys():
        kind = KINDS[name]
        loader, resumed = kind.make(folder), kind.make(folder)
        loader.set_epoch(3)
        resumed.load_state_dict(loader.state_dict())  # between two epochs, nothing is repeated
        next(loader.follow(kind.load(loader)))
        state = json.loads(json.dumps(loader.state_dict()))
        with pytest.warns(UserWarning, match=r"epoch 3, but has no position.*set_epoch\(4\)"):
            resumed.load_state_dict(state)
        again = [*chain(*batches(kind, resumed))]
        assert again == epoch(kind, loader, 3), name
        assert resumed.epoch.value == 4, name


def test_state_of_a_different_order_is_rejected(folder: Path) -> None:
    for kind in KINDS.values():
        state, other = kind.make(folder, seed=1).state_dict(), kind.make(folder, seed=2)
        with pytest.raises(ValueError, match=r"belongs to the order of .*set_epoch\(1\)\."):
            other.load_state_dict(state)
        assert other.epoch.value == 0


def test_leaving_or_closing_a_loop_restarts_the_epoch(folder: Path) -> None:
    for name, kind in KINDS.items():
        whole, loader = batches(kind, kind.make(folder)), kind.make(folder)
        for follow in (True, False):
            loop: Any = kind.load(loader)
            for batch in loader.follow(loop) if follow else loop:
                assert kind.ids(batch) == whole[0], name
                break
            del batch
        try:
            for _ in loader.follow(kind.load(loader)):
                raise RuntimeError("the step failed")
        except RuntimeError as error:
            held = error  # its traceback keeps the loop alive
        for _ in range(2):
            loader.close()
        assert not [t for t in threading.enumerate() if t.name.startswith("images")]
        assert batches(kind, loader) == whole, name
        assert batches(kind, loader) != whole, (name, held)


OTHERS = KINDS.keys() - {"ragged", "tar", "images"}
FULL = [pytest.param(name, marks=pytest.mark.full) for name in sorted(OTHERS)]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ragged", "tar", *FULL])
def test_workers_of_a_rank_serve_its_epochs(
    name: str, start_method: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two persistent workers. Unless they are forked, only the loader can give them the rank."""
    kind = KINDS[name]
    start_server(start_method)
    set_rank(monkeypatch, 1, 2)
    loader: Any = kind.make(folder)
    options = {"multiprocessing_context": start_method, "persistent_workers": True, "timeout": 120}
    loop = kind.load(loader, num_workers=2, **options)
    orders = []
    for number in (0, 1, 0):
        loader.set_epoch(number)
        orders.append([kind.ids(batch) for batch in loader.follow(loop)])
    assert orders[0] == orders[2]
    assert orders[0] != orders[1]
    assert loader.epoch.value == 1
    if kind.has_position:
        next(loader.follow(loop))
        loader.load_state_dict(loader.state_dict())
        assert [kind.ids(batch) for batch in loader.follow(loop)] == orders[1][1:]
    other = kind.make(folder, slot=WorkerSlot(0, 2))
    both = [*chain(*orders[0]), *epoch(kind, other, 0)]
    assert len(set(both)) == len(both) >= (EVENTS if kind.is_stream else N - 1)


@pytest.mark.slow
def test_leaving_early_leaves_no_worker(folder: Path) -> None:
    before = {*multiprocessing.active_children()}
    for name in ("ragged", "tar"):
        kind = KINDS[name]
        loader = kind.make(folder)
        for batch in loader.follow(kind.load(loader, num_workers=1)):
            assert kind.ids(batch)
            break
        del batch
        assert set(multiprocessing.active_children()) <= before


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="asks Linux which files are mapped")
def test_close_unmaps_the_file(folder: Path, tmp_path: Path) -> None:
    kind, file = KINDS["ragged"], shutil.copy(folder / "rows.npy", tmp_path)
    loader = kind.make(tmp_path)
    for _ in range(2):
        assert batches(kind, loader)
        assert str(file) in Path("/proc/self/maps").read_text("utf-8")
        loader.close()
        loader.close()
        assert str(file) not in Path("/proc/self/maps").read_text("utf-8")


def test_default_device_does_not_affect_loaders(folder: Path) -> None:
    """A DataLoader fails with the default device "meta", so this test loops over loaders."""
    for name, kind in KINDS.items():
        expected = sum(1 for _ in kind.make(folder))
        with torch.device("meta"):
            items = [*kind.make(folder)]
        assert len(items) == expected, name
        fields = chain(*(item.values() for item in items if isinstance(item, dict)))
        devices = {field.device.type for field in fields if isinstance(field, torch.Tensor)}
        assert devices <= {"cpu"}, name


def test_default_device_does_not_affect_helpers(events_folder: Path) -> None:
    with torch.device("meta"):
        epoch = SharedEpoch()
        epoch.value = 3
        cached = SampleCache(MemmapEvents(events_folder), megabytes=1)
        batch = pad_collate([cached[0], cached[1], cached[0]])
        draws = Augment(size=8).draw(torch.Size((4, 3, 16, 16)))
    assert epoch.value == 3
    tensors = [*batch.values(), *vars(draws).values()]
    assert {tensor.device.type for tensor in tensors} == {"cpu"}
