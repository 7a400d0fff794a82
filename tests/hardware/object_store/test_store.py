"""A store as its user has it: started, counted, broken, killed, started again, sent to workers."""

import http.client
import math
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

import numpy as np
import psutil
import pytest

from course_utils.hardware.object_store import object_store
from course_utils.hardware.object_store import store as module
from course_utils.hardware.storage import storage_preset
from keepfed.errors import KeepfedError

DATA = np.random.default_rng(0).bytes(400_000)
S3 = storage_preset("S3")
SLOW = replace(S3, request_ms=1, mb_s=0.4, stream_mb_s=0.4)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "shards").mkdir()
    for name in ("a.tar", "b.tar"):
        (tmp_path / "shards" / name).write_bytes(DATA)
    return tmp_path / "shards"


def children():
    return set(psutil.Process().children())


def get(store, name="a.tar", **headers):
    request = urllib.request.Request(store.url_of(name), headers=headers)
    with urllib.request.urlopen(request, timeout=20) as answer:
        return answer.read()


def test_a_store_serves_until_the_block_is_left_and_keeps_its_token_to_itself(folder):
    before = children()
    with object_store(folder, "S3") as store:
        assert get(store) == DATA
        # quoted but for what WebDataset expands
        url = store.url_of("two words/{000..003}.tar")
        assert url == f"{store.url}/two%20words/{{000..003}}.tar?token={store.token}"
        assert store.headers == {"Authorization": f"Bearer {store.token}"}
        (server,) = children() - before
        assert store.token not in " ".join(server.cmdline())
        if os.name != "nt":  # where there are no process groups of this kind
            assert os.getpgid(server.pid) != os.getpgid(0)  # what Jupyter sends SIGINT to
    with pytest.raises(urllib.error.URLError):
        get(store)
    store.close()
    store = object_store(folder, None)
    (server,) = children() - before
    del store
    assert not server.is_running()


def test_all_that_hold_a_store_count_together_from_the_last_reset(folder):
    (folder / "large").write_bytes(bytes(50_000_000))
    with object_store(folder, None) as store:
        copy = pickle.loads(pickle.dumps(store))
        assert len(store.token) >= 20
        with urllib.request.urlopen(store.url_of("large")) as answer:
            answer.read(10)  # a client that leaves in the middle costs no more
        get(copy, Range="bytes=0-99")
        assert store.counters().bytes_sent < 50_000_000
        store.reset_counters()
        get(copy, Range="bytes=0-99")
        seen = store.counters()
        assert seen == copy.counters()
        assert (seen.requests, seen.lookups, seen.bytes_sent, seen.broken) == (1, 0, 100, 0)
        assert str(seen) == "1 request, 0 look-ups, 100 B sent, 0 broken off"


@pytest.mark.parametrize("at", [0, 65_536, 399_999, 400_000])
def test_a_connection_breaks_once_for_each_file_and_a_second_try_goes_on(folder, at):
    with object_store(folder, None, break_after=at) as store:
        for name in ("a.tar", "b.tar"):
            if at < len(DATA):
                with pytest.raises(http.client.IncompleteRead) as broken:
                    get(store, name)
                assert broken.value.partial == DATA[:at]
                assert DATA[:at] + get(store, name, Range=f"bytes={at}-") == DATA
            assert get(store, name) == DATA
        assert store.counters().broken == (2 if at < len(DATA) else 0)


def test_a_store_killed_in_the_middle_of_an_answer_can_be_started_again(folder):
    with object_store(folder, SLOW) as store:
        with urllib.request.urlopen(store.url_of("a.tar")) as answer:
            assert answer.read(10) == DATA[:10]
            store.kill()
            with pytest.raises((http.client.IncompleteRead, ConnectionError)):
                answer.read()
        with pytest.raises(KeepfedError, match=r"start it again with store\.restart\(\)"):
            store.counters()
        url, token, port = store.url, store.token, int(store.url.rpartition(":")[2])
        with (
            socket.create_server(("127.0.0.1", port)),
            pytest.raises(KeepfedError, match=f"^Port {port} is taken"),
        ):
            store.restart()
        store.restart()
        assert (store.url, store.token) == (url, token)
        assert get(store, Range="bytes=10-99") == DATA[10:100]
        assert store.counters().requests == 1


def test_a_file_that_is_cut_short_meanwhile_is_an_error_not_wrong_data(folder):
    with (
        object_store(folder, SLOW) as store,
        urllib.request.urlopen(store.url_of("a.tar")) as answer,
    ):
        answer.read(10)
        os.truncate(folder / "a.tar", 70_000)
        with pytest.raises(http.client.IncompleteRead):
            answer.read()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"folder": "a.tar"}, ".* is a file; name"),
        ({"preset": "s3"}, "There is no storage 's3'; choose one of"),
        ({"break_after": math.nan}, "An answer cannot break off after nan bytes; choose"),
    ],
)
def test_what_cannot_be_served_is_said_and_leaves_no_process(folder, options, said):
    before = children()
    with pytest.raises((KeepfedError, ValueError), match=f"^{said}"):
        object_store(**{**options, "folder": folder / options.get("folder", "")})
    assert children() == before


def test_a_server_that_says_nothing_is_ended_and_one_that_ended_is_said(folder, monkeypatch):
    before = children()
    for patience, server in ((0, "import time; time.sleep(60)"), (30, "")):
        monkeypatch.setattr(module, "_PATIENCE_S", patience)
        monkeypatch.setattr(module, "_SERVER", server)
        with pytest.raises(KeepfedError, match=r"^The store did not start; close what"):
            object_store(folder, None)
    assert children() == before


def test_an_interrupt_while_it_starts_leaves_no_process_however_long_it_is_remembered(
    folder, monkeypatch
):
    def interrupt(settings):
        raise KeyboardInterrupt

    before = children()
    monkeypatch.setattr(module.json, "dumps", interrupt)
    with pytest.raises(KeyboardInterrupt) as _remembered:
        object_store(folder, None)
    assert children() == before


def read_and_leave(store):
    assert get(store) == DATA
    with pytest.raises(KeepfedError, match="A worker has a copy of the store"):
        store.kill()
    store.close()


@pytest.mark.slow
def test_a_worker_may_read_but_ends_nothing(folder, start_method):
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
def test_a_store_ends_with_the_process_that_started_it_even_if_that_is_killed(folder):
    pipes = dict.fromkeys(["stdin", "stdout"], subprocess.PIPE)
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder)], text=True, **pipes
    ) as starter:
        server = psutil.Process(int(starter.stdout.readline()))
        starter.kill()
    assert psutil.wait_procs([server], timeout=20)[1] == []


def test_no_more_requests_are_answered_at_once_than_there_are_slots(folder):
    with (
        object_store(folder, replace(S3, request_ms=100, requests_at_once=2)) as store,
        ThreadPoolExecutor(8) as pool,
    ):
        start = time.perf_counter()
        assert set(pool.map(lambda _: get(store), range(8))) == {DATA}
        assert time.perf_counter() - start >= 4 * 0.1
