import gc
import sys
from pathlib import Path

import pytest

from benchmarks.peer_loaders import PEERS
from benchmarks.peers import folder_of, prepare, timed, write
from notebooks.stories.peers import COURSE, LIBRARIES
from notebooks.stories.peers.course import LIMIT, RECORDS
from notebooks.stories.peers.ledger import ledger

EVENTS, SINGLE, BATCH = 2100, 300, 64
MORE = PEERS.keys() - COURSE.keys() - LIBRARIES.keys()  # the others have tests of their own


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a few events in all formats. Do not write into it."""
    made = tmp_path_factory.mktemp("peers")
    write(made, EVENTS, SINGLE)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(name for name in MORE if "workers" not in name))
def test_every_peer_gives_every_event_once(name: str, folder: Path) -> None:
    peer = PEERS[name]
    epoch = peer.load(folder_of(peer, folder), BATCH)

    for number in range(2):
        _, found = timed(epoch, number)
        assert ledger(found, EVENTS).complete
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
