"""A store from the user's view: started, counted, broken, killed, restarted, sent to workers."""

import http.client
import multiprocessing
import os
import pickle
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from course_utils.hardware.object_store import ObjectStore, object_store
from course_utils.hardware.object_store import store as module
from course_utils.hardware.storage import storage_preset
from keepfed.errors import KeepfedError

DATA = np.random.default_rng(0).bytes(400_000)
S3 = storage_preset("S3")
SLOW = replace(S3, request_ms=1, mb_s=0.4, stream_mb_s=0.4)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shards").mkdir()
    for name in ("a.tar", "b.tar"):
        (tmp_path / "shards" / name).write_bytes(DATA)
    return tmp_path / "shards"


def children() -> set[psutil.Process]:
    return set(psutil.Process().children())


def get(store: ObjectStore, name: str = "a.tar", **headers: str) -> bytes:
    request = urllib.request.Request(store.url_of(name), headers=headers)
    with urllib.request.urlopen(request, timeout=20) as answer:
        return bytes(answer.read())


def test_store_serves_inside_the_block_and_hides_its_token(folder: Path) -> None:
    before = children()
    with object_store(folder, "S3") as store:
        assert get(store) == DATA
        # quoted, except for the braces that WebDataset expands
        url = store.url_of("two words/{000..003}.tar")
        assert url == f"{store.url}/two%20words/{{000..003}}.tar?token={store.token}"
        assert store.headers == {"Authorization": f"Bearer {store.token}"}
        (server,) = children() - before
        assert store.token not in " ".join(server.cmdline())
        if os.name != "nt":  # Windows has no such process groups
            assert os.getpgid(server.pid) != os.getpgid(0)  # Jupyter sends SIGINT to this group
    with pytest.raises(urllib.error.URLError):
        get(store)
    store.close()
    store = object_store(folder, None)
    (server,) = children() - before
    del store
    assert not server.is_running()


def test_all_clients_share_counters_since_the_last_reset(folder: Path) -> None:
    (folder / "large").write_bytes(bytes(50_000_000))
    with object_store(folder, None) as store:
        copy = pickle.loads(pickle.dumps(store))
        assert len(store.token) >= 20
        with urllib.request.urlopen(store.url_of("large")) as answer:
            answer.read(10)  # a client that disconnects early costs no more
        get(copy, Range="bytes=0-99")
        assert store.counters().bytes_sent < 50_000_000
        store.reset_counters()
        get(copy, Range="bytes=0-99")
        assert store.counters() == copy.counters()
        assert str(store.counters()) == "1 request, 0 look-ups, 100 B sent, 0 broken off"


def test_connection_breaks_once_per_file(folder: Path) -> None:
    for at in (0, 65_536, 400_000):
        with object_store(folder, None, break_after=at) as store:
            for name in ("a.tar", "b.tar"):
                if at < len(DATA):
                    with pytest.raises(http.client.IncompleteRead) as broken:
                        get(store, name)
                    assert broken.value.partial == DATA[:at]
                    assert DATA[:at] + get(store, name, Range=f"bytes={at}-") == DATA
                assert get(store, name) == DATA
            assert store.counters().broken == (2 if at < len(DATA) else 0)


def test_store_killed_during_an_answer_can_be_restarted(folder: Path) -> None:
    with object_store(folder, SLOW) as store:
        with urllib.request.urlopen(store.url_of("b.tar")) as answer:
            answer.read(10)
            os.truncate(folder / "b.tar", 70_000)
            with pytest.raises(http.client.IncompleteRead):
                answer.read()
        with urllib.request.urlopen(store.url_of("a.tar")) as answer:
            assert answer.read(10) == DATA[:10]
            store.kill()
            with pytest.raises((http.client.IncompleteRead, ConnectionError)):
                answer.read()
        with pytest.raises(KeepfedError, match=r"Restart it with store\.restart\(\)"):
            store.counters()
        url, token, port = store.url, store.token, int(store.url.rpartition(":")[2])
        with (
            socket.create_server(("127.0.0.1", port)),
            pytest.raises(KeepfedError, match=f"^Cannot listen on port {port}"),
        ):
            store.restart()
        store.restart()
        assert (store.url, store.token) == (url, token)
        assert get(store, Range="bytes=10-99") == DATA[10:100]
        assert store.counters().requests == 1


def test_failed_start_is_reported_and_leaves_no_process(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = children()
    with pytest.raises(KeepfedError, match=r"a\.tar is not a folder\. Create it, or choose"):
        object_store(folder / "a.tar")
    with pytest.raises(ValueError, match=r"There is no storage 's3'\. Choose one of"):
        object_store(folder, "s3")
    for patience, server in ((0, "import time; time.sleep(60)"), (30, "")):
        monkeypatch.setattr(module, "_PATIENCE_S", patience)
        monkeypatch.setattr(module, "_SERVER", server)
        with pytest.raises(KeepfedError, match=r"^The store did not start\. Close busy"):
            object_store(folder, None)

    def interrupt(settings: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module.json, "dumps", interrupt)
    with pytest.raises(KeyboardInterrupt) as _remembered:
        object_store(folder, None)
    assert children() == before


def read_and_leave(store: ObjectStore) -> None:
    assert get(store) == DATA
    with pytest.raises(KeepfedError, match="This is a worker's copy of the store"):
        store.kill()
    store.close()


@pytest.mark.slow
def test_worker_can_read_but_not_kill(folder: Path, start_method: str) -> None:
    with object_store(folder, None) as store:
        context = multiprocessing.get_context(start_method)
        worker = context.Process(target=read_and_leave, args=(store,))
        worker.start()
        worker.join(60)
        assert worker.exitcode == 0
        assert store.counters().requests == 1


PROGRAM = """
import psutil, sys
from course_utils.hardware.object_store import object_store
store = object_store(sys.argv[1], None)
print(psutil.Process().children()[0].pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_store_ends_with_its_owner_even_if_the_owner_is_killed(folder: Path) -> None:
    pipes = dict.fromkeys(["stdin", "stdout"], subprocess.PIPE)
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder)], text=True, **pipes
    ) as starter:
        server = psutil.Process(int(starter.stdout.readline()))
        starter.kill()
    assert psutil.wait_procs([server], timeout=20)[1] == []


def test_parallel_answers_are_limited_to_the_number_of_slots(folder: Path) -> None:
    with (
        object_store(folder, replace(S3, request_ms=100, requests_at_once=2)) as store,
        ThreadPoolExecutor(8) as pool,
    ):
        start = time.perf_counter()
        assert set(pool.map(lambda _: get(store), range(8))) == {DATA}
        assert time.perf_counter() - start >= 4 * 0.1
