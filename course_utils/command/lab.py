"""Serve the notebooks with the course's own JupyterLab: quiet, offline, separate from others.

Settings, workspaces, kernels and signatures are stored in one folder of the project. The user's
own Jupyter is neither read nor changed.
"""

import contextlib
import os
import platform
import secrets
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
import webbrowser
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from course_utils.errors import CourseError
from keepfed.files import replace_file

_START_UP_S = 120.0
# A company proxy cannot reach this machine, so do not use one.
_LOCAL = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_KEPT = {
    "JUPYTER_CONFIG_DIR": "config",
    "JUPYTER_DATA_DIR": "data",
    "JUPYTER_RUNTIME_DIR": "runtime",
    "JUPYTERLAB_SETTINGS_DIR": "settings",
    "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
    "IPYTHONDIR": "ipython",
}
# Settings in the format of JupyterLab: quiet, offline, and without jupytext, which would offer to
# pair notebooks with text files. Widget state is saved, because JupyterLab shows an error instead
# of each timeline if a notebook is opened without that state.
_SETTINGS = Path(__file__).with_name("jupyter")


@dataclass(frozen=True)
class Server:
    """A running JupyterLab: its address with the token, and its process."""

    url: str
    process: subprocess.Popen[bytes]


@contextlib.contextmanager
def serve(
    root: Path, notebook: str, *, state: Path, port: int | None = None, ip: str = "127.0.0.1"
) -> Iterator[Server]:
    """Run JupyterLab on `notebook` inside a `with` block.

    Args:
        root: Folder that the server shows.
        notebook: Path of the first notebook, relative to `root`, with forward slashes.
        state: Folder for settings, workspaces and logs of this JupyterLab.
        port: Port to listen on. None selects the first free port from 8888.
        ip: Address to listen on.

    Raises:
        CourseError: If JupyterLab does not start, for example because the port is not available.
    """
    token, ip = secrets.token_hex(16), "0.0.0.0" if ip in ("", "*") else ip
    prepare(state, notebook)
    process, base = _start(_command(root, notebook, port=port, ip=ip), state, token), ""
    try:
        base = _wait_for_address(state, process)
        if not base:
            log = state / "lab.log"
            *_, reason = ["empty.", *log.read_text("utf-8").splitlines()]
            raise CourseError(
                f"JupyterLab did not start. The last line of {log} is: {reason.strip()} "
                "To choose another address, use `course lab --port` or `--ip`."
            )
        yield Server(f"{base}{_lab_path(notebook)}?token={token}", process)
    finally:
        _stop(f"{base}/api/shutdown?token={token}" if base else "", process)


def trust(notebooks: Iterable[Path], *, state: Path | None = None) -> None:
    """Sign notebooks, so that JupyterLab runs the scripts of the pictures stored in them.

    Pass the `state` folder of `serve`, or nothing for the Jupyter of this user.
    """
    import nbformat
    from nbformat.sign import NotebookNotary

    where = {}
    if state:
        _keep_private(state)
        data = state / _KEPT["JUPYTER_DATA_DIR"]
        data.mkdir(parents=True, exist_ok=True)
        where = {"data_dir": str(data)}
    notary = NotebookNotary(**where)  # type: ignore[no-untyped-call]
    for path in notebooks:
        notary.sign(nbformat.read(path, as_version=4))  # type: ignore[no-untyped-call]


def _start(command: list[str], state: Path, token: str) -> subprocess.Popen[bytes]:
    with (state / "lab.log").open("wb") as output:
        return subprocess.Popen(
            command,
            # use this Python's kernel even if a user-wide kernel has the same name
            env=os.environ
            | {name: str(state / folder) for name, folder in _KEPT.items()}
            | {"JUPYTER_TOKEN": token, "JUPYTER_PREFER_ENV_PATH": "1"}
            # for `!course` in a cell, because the environment may not be active
            | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # Ctrl-C must not reach JupyterLab, which would ask a question on the terminal.
            start_new_session=True,
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )


def _wait_for_address(state: Path, process: subprocess.Popen[bytes]) -> str:
    """Return the address of the server, once it answers, or "" if it ends."""
    give_up = time.monotonic() + _START_UP_S
    while process.poll() is None and time.monotonic() < give_up:
        with contextlib.suppress(OSError, ValueError):  # its file is only written in part
            for pid, base, _ in _servers(state):
                if pid == process.pid:
                    return base
        time.sleep(0.1)
    return ""


def running(state: Path, notebook: str) -> str | None:
    """Return the address of a JupyterLab that already runs with `state`, or None."""
    urls = (f"{base}{_lab_path(notebook)}?token={token}" for _, base, token in _servers(state))
    return next(urls, None)


def _servers(state: Path) -> Iterator[tuple[int, str, str]]:
    """Yield process, address and token of each JupyterLab that answers and runs with `state`."""
    from jupyter_server.serverapp import list_running_servers

    for server in list_running_servers(str(state / "runtime")):
        base, token = _address(server["hostname"], server["port"]), server["token"]
        if _is_up(f"{base}/api/status?token={token}"):
            yield server["pid"], base, token


def hide_token(url: str, state: Path) -> str:
    """Return the address of a page that leads to `url`.

    Every user can see the arguments of a browser, but only this user can read the page.
    """
    if os.name != "posix" or "microsoft" in platform.release():  # a browser of Windows
        return url
    page = state / "open.html"
    replace_file(page, f'<meta http-equiv="refresh" content="0; url={url}">', mode=0o600)
    return page.as_uri()


def open_browser(url: str) -> bool:
    """Open the address in a graphical browser; return whether there is one."""
    windows = not sys.platform.startswith("linux") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )
    try:
        return windows and webbrowser.open(url)
    except (webbrowser.Error, OSError):
        return False


def _command(root: Path, notebook: str, *, port: int | None, ip: str) -> list[str]:
    as_root = ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    return [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", *as_root),
        f"--ServerApp.root_dir={root}",
        f"--ServerApp.ip={ip}",
        f"--ServerApp.port={8888 if port is None else port}",
        f"--ServerApp.port_retries={99 if port is None else 0}",
        f"--ContentsManager.preferred_dir={notebook.rpartition('/')[0]}",
        f"--LabApp.default_url={_lab_path(notebook)}",
        "--LabApp.news_url=None",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        "--LabApp.extension_manager=readonly",
    ]


def _lab_path(notebook: str) -> str:
    return f"/lab/workspaces/course/tree/{notebook}"


def _address(ip: str, port: int) -> str:
    """Return the URL at which this machine reaches a server that listens on `ip`."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(ip, ip)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _is_up(status: str) -> bool:
    try:
        _LOCAL.open(status, timeout=1).close()
    except OSError:
        return False
    return True


def _stop(shutdown: str, process: subprocess.Popen[bytes]) -> None:
    # On a shutdown request, the server also stops its kernels, and they stop their workers.
    with contextlib.suppress(OSError, ValueError):  # ValueError: it has no address yet
        _LOCAL.open(urllib.request.Request(shutdown, method="POST"), timeout=5).close()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _keep_private(state: Path) -> None:
    """Let only this user read the state, because it contains the token. Create it if needed.

    Raises:
        CourseError: If the folder belongs to another user.
    """
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    if os.name != "posix":
        return
    if state.stat().st_uid != os.getuid():
        raise CourseError(
            f"{state} belongs to another user. Set COURSE_HOME to a folder of your own."
        )
    state.chmod(0o700)  # so nobody else reaches the files in it


def prepare(state: Path, notebook: str) -> None:
    """Copy the settings, and on the first start create a window layout that shows `notebook`.

    A JupyterHub prepares the servers of its learners in the same way.
    """
    from jupyterlab_server.workspaces_handler import WorkspacesManager

    _keep_private(state)
    for folder in _KEPT.values():
        (state / folder).mkdir(exist_ok=True)
    shutil.copytree(_SETTINGS / "config", state / "config", dirs_exist_ok=True)
    if not any((state / "workspaces").iterdir()):
        layout = (_SETTINGS / "workspace.json").read_text("utf-8")
        workspaces = WorkspacesManager(str(state / "workspaces"))
        workspaces.save("course", layout.replace("NOTEBOOK", notebook))
