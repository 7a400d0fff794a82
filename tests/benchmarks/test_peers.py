import gc
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.ledger import ledger
from benchmarks.peer_files import write
from benchmarks.peer_loaders import LIMIT, PEERS, RECORDS
from benchmarks.peers import prepare, threads, timed

EVENTS, SINGLE, BATCH = 2100, 300, 64


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a few events in all formats. Do not write into it."""
    made = tmp_path_factory.mktemp("peers")
    write(made, EVENTS, SINGLE)
    return made


def batches(order: torch.Tensor) -> list[torch.Tensor]:
    return list(order.split(1000))  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    ("order", "served", "distinct", "neighbours"),
    [
        (torch.randperm(20_000, generator=torch.Generator().manual_seed(0)), 20_000, 20_000, 1),
        (torch.arange(20_000), 20_000, 20_000, 20),  # on disk: each batch is one run
        (torch.arange(19_900), 19_900, 19_900, 20),
        (torch.arange(20_000) // 2, 20_000, 10_000, 10),
    ],
)
def test_the_books_tell_what_is_dropped_repeated_or_not_shuffled(
    order: torch.Tensor, served: int, distinct: int, neighbours: float
) -> None:
    books = ledger(batches(order), 20_000)

    assert (books.served, books.distinct) == (served, distinct)
    assert books.complete == (served == distinct == 20_000)
    assert books.neighbours == pytest.approx(neighbours, rel=0.15)
    assert books.shuffled == (neighbours == 1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # webdataset closes none
@pytest.mark.parametrize("name", [name for name in PEERS if "workers" not in name])
def test_every_peer_gives_every_event_once(name: str, folder: Path) -> None:
    if "tensordict" in name:
        pytest.importorskip("tensordict")
    n = SINGLE if PEERS[name].single else EVENTS
    epoch = PEERS[name].make(folder, BATCH)

    for number in range(2):
        _, found = timed(epoch, number)
        assert ledger(found, n).complete
        assert max(map(len, found)) == BATCH
    gc.collect()


def test_a_peer_that_is_not_installed_is_left_out_with_a_sentence(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tensordict", None)
    wanted = {name: PEERS[name] for name in (LIMIT, RECORDS, "tensordict, memory-mapped")}
    monkeypatch.setattr("benchmarks.peers.PEERS", wanted)
    measured = prepare(folder, EVENTS, SINGLE, BATCH)

    assert set(measured) == {LIMIT, RECORDS}
    assert "left out: install it with `pip install tensordict`." in capsys.readouterr().out


def test_threads_of_torch_are_given_back() -> None:
    before = torch.get_num_threads()
    with threads(1):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before
