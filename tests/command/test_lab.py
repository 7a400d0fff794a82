import contextlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
import urllib.request
import webbrowser
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from course_utils.command import lab
from keepfed.errors import KeepfedError

NOTEBOOK = "work/00_start_here.ipynb"
NEWS = "@jupyterlab/apputils-extension:notification"


def test_a_learner_s_own_layout_is_not_laid_out_again(tmp_path):
    lab.prepare(tmp_path, NOTEBOOK)
    (layout,) = (tmp_path / "workspaces").iterdir()
    assert NOTEBOOK in layout.read_text()
    layout.write_text("their own")
    lab.prepare(tmp_path, NOTEBOOK)
    assert layout.read_text() == "their own"


@pytest.mark.slow
def test_a_server_that_does_not_start_gives_the_reason(tmp_path):
    (tmp_path / "work").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(KeepfedError, match=rf"lab\.log.*port {port} is not available"),
            lab.serve(tmp_path, NOTEBOOK, state=tmp_path, port=port),
        ):
            pytest.fail("it started")


def test_linux_without_windows_has_no_browser(monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(lab.sys, "platform", "linux")
    monkeypatch.setattr(webbrowser, "open", lambda url: True)
    assert not lab.open_browser("http://127.0.0.1:1")
    monkeypatch.setenv("BROWSER", "code")
    assert lab.open_browser("http://127.0.0.1:1")
    fails = Mock(side_effect=webbrowser.Error("could not locate runnable browser"))
    monkeypatch.setattr(webbrowser, "open", fails)
    assert not lab.open_browser("http://127.0.0.1:1")


AS_NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


@pytest.mark.skipif(
    os.name == "nt" or os.geteuid() != 0 or not shutil.which("setpriv"),
    reason="only root can act as another user",
)
@pytest.mark.slow
def test_no_other_user_reads_the_token_also_after_an_older_start():
    with tempfile.TemporaryDirectory() as made:  # other users may enter it, unlike `tmp_path`
        state, runtime = Path(made, ".jupyter"), Path(made, ".jupyter", "runtime")
        runtime.mkdir(parents=True)
        (runtime / "jpserver-1-open.html").write_text("token=old")
        for place in (made, state, runtime):
            Path(place).chmod(0o755)
        Path(made, "work").mkdir()
        with lab.serve(Path(made), NOTEBOOK, state=state, ip="127.0.0.2") as server:
            page = lab.hide_token(server.url, state)
            files = [path for path in state.rglob("*") if path.is_file()]
            names = {path.name for path in files}
            assert {"open.html", "lab.log", f"jpserver-{server.process.pid}.json"} <= names
            assert server.url in Path(page.removeprefix("file://")).read_text()
            readable = subprocess.run([*AS_NOBODY, "cat", *files], capture_output=True, check=False)
            assert (readable.returncode, readable.stdout) == (1, b"")
            assert state.stat().st_mode & 0o777 == 0o700
            assert lab.running(state, NOTEBOOK) == server.url
        os.chown(state, 65534, 65534)
        with pytest.raises(KeepfedError, match=r"belongs to another user\. Set COURSE_HOME"):
            lab.prepare(state, NOTEBOOK)


@pytest.mark.slow
def test_a_server_runs_is_found_and_leaves_nothing_behind_or_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # leads nowhere
    state = tmp_path / ".jupyter"
    (tmp_path / "work").mkdir()
    assert lab.running(state, NOTEBOOK) is None
    with lab.serve(tmp_path, NOTEBOOK, state=state, port=0, ip="0.0.0.0") as server:
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
