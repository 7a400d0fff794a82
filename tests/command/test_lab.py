import contextlib
import json
import socket
import sys
import urllib.request
import webbrowser
from pathlib import Path
from typing import Any

import pytest

from course_utils.command import lab
from keepfed.errors import KeepfedError

NOTEBOOK = "work/00_start_here.ipynb"
NEWS = "@jupyterlab/apputils-extension:notification"


def test_a_learner_s_own_layout_is_not_laid_out_again(tmp_path):
    lab._prepare(tmp_path, NOTEBOOK)
    (layout,) = (tmp_path / "workspaces").iterdir()
    assert NOTEBOOK in layout.read_text()
    layout.write_text("their own")
    lab._prepare(tmp_path, NOTEBOOK)
    assert layout.read_text() == "their own"


def test_a_taken_port_is_refused_with_the_next_step():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(KeepfedError, match=f"Port {port} is in use. Choose another"):
            lab._free_port("127.0.0.1", port)


def test_a_server_that_does_not_start_names_its_log(tmp_path, monkeypatch):
    monkeypatch.setattr(lab, "_command", lambda *_, **__: [sys.executable, "-c", ""])
    with (
        pytest.raises(KeepfedError, match=r"did not start.*lab\.log"),
        lab.serve(tmp_path, NOTEBOOK, state=tmp_path),
    ):
        pytest.fail("it started")


@pytest.mark.slow
def test_a_port_that_another_user_takes_at_that_moment_is_left_to_them(tmp_path, monkeypatch):
    find, found = lab._free_port, []

    def too_late(ip, wanted):
        found.append(taken.getsockname()[1] if not found else find(ip, 0))
        return found[-1]

    monkeypatch.setattr(lab, "_free_port", too_late)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        (tmp_path / "work").mkdir()
        with lab.serve(tmp_path, NOTEBOOK, state=tmp_path / ".jupyter") as server:
            assert f":{found[1]}/" in server.url
    assert len(found) == 2


def test_linux_without_windows_has_no_browser(monkeypatch):
    def fails(url):
        raise webbrowser.Error("could not locate runnable browser")

    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(lab.sys, "platform", "linux")
    monkeypatch.setattr(webbrowser, "open", lambda url: True)
    assert not lab.open_browser("http://127.0.0.1:1")
    monkeypatch.setenv("BROWSER", "code")
    assert lab.open_browser("http://127.0.0.1:1")
    monkeypatch.setattr(webbrowser, "open", fails)
    assert not lab.open_browser("http://127.0.0.1:1")


@pytest.mark.slow
def test_a_server_runs_is_found_and_leaves_nothing_behind_or_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # leads nowhere
    state = tmp_path / ".jupyter"
    (tmp_path / "work").mkdir()
    assert lab.running(state, NOTEBOOK) is None
    with lab.serve(tmp_path, NOTEBOOK, state=state, port=0) as server:
        assert lab.running(state, NOTEBOOK) == server.url
        base, _, query = server.url.partition("/lab/workspaces")
        token = query.partition("token=")[2]
        address = f"{base}/lab/api/settings/{NEWS}?token={token}"
        no_proxy = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with contextlib.closing(no_proxy.open(address, timeout=30)) as answer:
            assert json.load(answer)["schema"]["properties"]["fetchNews"]["default"] == "false"
        arguments: Any = server.process.args
        assert token not in " ".join(map(str, arguments))
    assert server.process.returncode == 0
    assert "jupytext | extension was successfully loaded" not in (state / "lab.log").read_text()
    assert lab.running(state, NOTEBOOK) is None
    assert all(Path(state, folder).is_dir() for folder in lab._KEPT.values())
