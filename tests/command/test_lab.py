import contextlib
import json
import os
import socket
import urllib.request
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from course_utils.command import lab
from course_utils.errors import CourseError

NOTEBOOK = "work/00_start_here.ipynb"


def test_everything_jupyter_keeps_lies_in_one_folder(tmp_path: Path) -> None:
    environment = lab._environment(tmp_path)
    assert environment.pop("JUPYTER_PREFER_ENV_PATH") == "1"
    assert all(Path(folder).is_relative_to(tmp_path) for folder in environment.values())
    assert {"JUPYTER_CONFIG_DIR", "JUPYTERLAB_SETTINGS_DIR", "IPYTHONDIR"} <= environment.keys()


def test_the_settings_keep_jupyterlab_from_asking_for_news(tmp_path: Path) -> None:
    lab._prepare(tmp_path, NOTEBOOK)
    quiet = tmp_path / "config" / "labconfig" / "default_setting_overrides.json"
    news = json.loads(quiet.read_text())["@jupyterlab/apputils-extension:notification"]
    assert (news["fetchNews"], news["checkForUpdates"]) == ("false", False)


def test_a_learner_s_own_layout_is_not_laid_out_again(tmp_path: Path) -> None:
    lab._prepare(tmp_path, NOTEBOOK)
    (layout,) = (tmp_path / "workspaces").iterdir()
    assert NOTEBOOK in layout.read_text()
    layout.write_text("their own")
    lab._prepare(tmp_path, NOTEBOOK)
    assert layout.read_text() == "their own"


def test_a_taken_port_is_refused_with_the_next_step() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CourseError, match=f"Port {port} is taken; choose another"):
            lab._free_port("127.0.0.1", port)


@pytest.mark.slow
def test_a_server_that_does_not_start_names_its_log(tmp_path: Path) -> None:
    with (
        pytest.raises(CourseError, match=r"did not start.*lab\.log"),
        lab.serve(tmp_path, NOTEBOOK, state=tmp_path, options=["--ServerApp.port=nonsense"]),
    ):
        pytest.fail("it started")


@pytest.mark.parametrize(
    ("environment", "opened"),
    [({}, False), ({"DISPLAY": ":0"}, True), ({"BROWSER": "code"}, True)],
)
def test_linux_without_windows_has_no_browser(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], opened: bool
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(lab.sys, "platform", "linux")
    monkeypatch.setattr(webbrowser, "open", lambda url: True)
    assert lab.open_browser("http://127.0.0.1:1") is opened


def test_a_browser_that_cannot_be_opened_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(url: str) -> bool:
        raise webbrowser.Error("could not locate runnable browser")

    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(webbrowser, "open", fails)
    assert not lab.open_browser("http://127.0.0.1:1")


@pytest.mark.slow
def test_a_server_runs_is_found_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # leads nowhere
    state = tmp_path / ".jupyter"
    (tmp_path / "work").mkdir()
    assert lab.running(state, NOTEBOOK) is None
    with lab.serve(tmp_path, NOTEBOOK, state=state, port=0) as server:
        assert lab.running(state, NOTEBOOK) == server.url
        assert settings(server.url)["fetchNews"] == "false"
        token = server.url.partition("token=")[2]
        assert token not in " ".join(arguments_of(server.process.args))
    assert server.process.returncode == 0
    assert "jupytext | extension was successfully loaded" not in (state / "lab.log").read_text()
    assert lab.running(state, NOTEBOOK) is None


def arguments_of(args: Any) -> Sequence[str]:
    return [os.fspath(arg) for arg in args]


def settings(url: str) -> dict[str, Any]:
    base, _, token = url.partition("/lab/workspaces")
    plugin = "@jupyterlab/apputils-extension:notification"
    address = f"{base}/lab/api/settings/{plugin}?{token.partition('?')[2]}"
    no_proxy = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with contextlib.closing(no_proxy.open(address, timeout=30)) as answer:
        properties = json.load(answer)["schema"]["properties"]
    return {name: entry["default"] for name, entry in properties.items()}
