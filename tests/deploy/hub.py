"""Start the hub of `deploy/` on this machine, and let two learners work in it at the same time.

    python tests/deploy/hub.py FOLDER  # FOLDER: of the environment, the data and the screenshots

Both log in, run the notebook 00 that they were handed out, write a cell of their own and log out.
Their servers stop, they log in again, and their work must still be there. It needs Chromium and
npm, and installs JupyterHub into an environment in FOLDER, beside the packages of this Python.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.request
import venv
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO))
from tests.browser.lab_page import FIRST, LabPage  # noqa: E402

PASSWORD = "feed the gpus"
LEARNERS = ("ada", "emmy")
OWN = "print('the work of {}')"
RUN = """() => {
    const running = window.jupyterapp.commands.execute('notebook:run-all-cells');
    running.finally(() => { window.allRan = true });
}"""
WRITE = """async source => {
    const {commands, shell} = window.jupyterapp;
    const notebook = shell.currentWidget.content;
    notebook.activeCellIndex = notebook.widgets.length - 1;
    await commands.execute('notebook:insert-cell-below');
    notebook.activeCell.model.sharedModel.setSource(source);
    await commands.execute('notebook:run-cell');
    await commands.execute('docmanager:save');
}"""
SOURCES = "() => window.jupyterapp.shell.currentWidget.model.sharedModel.cells.map(c => c.source)"
# What the hub would ask Docker for, with a client that never reaches one.
CONTAINER = """
import asyncio, json, sys
from types import SimpleNamespace
from unittest.mock import AsyncMock, patch
import docker
from dockerspawner import DockerSpawner
from jupyterhub.objects import Hub
from traitlets.config import PyFileConfigLoader
config, parts = PyFileConfigLoader(sys.argv[1]).load_config(), {"server": None, "url": "/"}
user = SimpleNamespace(name="ada", escaped_name="ada", **parts)
orm, hub = SimpleNamespace(name="", **parts), Hub(connect_ip="hub")
spawner = DockerSpawner(config=config, user=user, orm_spawner=orm, hub=hub, oauth_client_id="x")
patch.object(DockerSpawner, "client", docker.APIClient(version="1.43")).start()
spawner.docker = AsyncMock(return_value={"Id": "1"})
asyncio.run(spawner.create_object())
print(json.dumps(spawner.docker.call_args.kwargs))
"""


def main(arguments: list[str]) -> int:
    """Play two learners and return 0 if all went well."""
    folder = Path(arguments[0]).resolve()
    prepare(folder)
    look_at_container(folder)
    data, began = times(folder / "data"), time.monotonic()
    with hub(folder) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("google-chrome"),
            args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
        )
        for visit in (first_visit, second_visit):
            pages = [log_in(browser, url, name) for name in LEARNERS]
            visit(dict(zip(LEARNERS, pages, strict=True)), folder)
            for page in pages:
                log_out(page, url)
        browser.close()
    assert times(folder / "data") == data, "a learner changed the data of all"
    print(f"All is well, after {time.monotonic() - began:.0f} s.")
    return 0


def look_at_container(folder: Path) -> None:
    """See that a container gets its limits, room in /dev/shm, and a place for the work."""
    choice = {"COURSE_SPAWNER": "docker", "COURSE_IMAGE": "course"}
    asked = json.loads(
        subprocess.run(
            [folder / "bin" / "python", "-c", CONTAINER, REPO / "deploy" / "jupyterhub_config.py"],
            env=environment(folder) | choice,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    )
    host = asked["host_config"]
    assert (asked["image"], host["Memory"], host["ShmSize"]) == ("course", 3 << 30, 2 << 30)
    assert host["CpuQuota"] == 2 * host["CpuPeriod"]
    assert (host["PidsLimit"], host["CapDrop"]) == (2048, ["ALL"])
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert host["Ulimits"] == [{"Name": "fsize", "Soft": 4 << 30, "Hard": 4 << 30}]
    assert host["Binds"] == ["course-learner-ada:/learner:rw"]


def first_visit(pages: dict[str, LabPage], folder: Path) -> None:
    """Run all cells in both browsers at the same time, and look for errors and timelines."""
    for page in pages.values():
        page.page.evaluate(RUN)
    for name, page in pages.items():
        page.page.wait_for_function("() => window.allRan", timeout=300_000)
        assert page.errors() == []
        assert all(cell["count"] for cell in page.cells())
        timelines = page.switch_timelines()
        assert timelines
        page.page.evaluate(WRITE, OWN.format(name))
        shoot(page, folder / f"{name}-first.png")
        print(f"{name}: {len(page.cells())} cells ran, {timelines} timelines", flush=True)


def second_visit(pages: dict[str, LabPage], folder: Path) -> None:
    """Find the own cell and the old outputs, and nothing of the other learner."""
    for name, page in pages.items():
        (own,) = (text for text in page.page.evaluate(SOURCES) if "the work of" in text)
        assert own == OWN.format(name)
        assert f"the work of {name}\n" in page.texts()
        page.page.locator(".tl").first.wait_for()
        shoot(page, folder / f"{name}-second.png")
        print(f"{name}: logged in again, and the work is still there", flush=True)


def log_in(browser: Browser, url: str, name: str) -> LabPage:
    """Log in as a learner, in a separate browser context, and wait for the notebook."""
    window = browser.new_context(viewport={"width": 1400, "height": 1000}, reduced_motion="reduce")
    page = LabPage(window, url=f"{url}/lab")
    page.page.goto(url)
    page.page.get_by_label("Username").fill(name)
    page.page.get_by_label("Password").fill(PASSWORD)
    page.page.get_by_role("button", name="Sign in").click()
    page.page.wait_for_url(f"**/lab/workspaces/course/tree/{FIRST}*", wait_until="commit")
    page.go(page.page.url)
    page.page.locator(".jp-TableOfContents").get_by_text("Start here").first.wait_for()
    assert page.popups() == []
    return page


def log_out(page: LabPage, url: str) -> None:
    """Stop the server and log out, on the hub's own page."""
    page.page.goto(f"{url}/hub/home")
    page.page.get_by_role("button", name="Stop My Server").click()
    page.page.get_by_role("button", name="Start My Server").wait_for()
    page.page.locator("#logout").click()
    page.page.get_by_role("button", name="Sign in").wait_for()
    assert page.external == []
    page.page.context.close()


def shoot(page: LabPage, path: Path) -> None:
    """Save a picture of the window at a timeline."""
    page.page.locator(".tl").first.scroll_into_view_if_needed()
    page.page.screenshot(path=path)


@contextlib.contextmanager
def hub(folder: Path) -> Iterator[str]:
    """Run the hub on free ports, as deploy/README.md describes, and yield its address."""
    state = folder / "hub"
    shutil.rmtree(state, ignore_errors=True)
    state.mkdir()
    port, hub_port, api = free_ports(3)
    url = f"http://127.0.0.1:{port}"
    command = [
        *(f"{folder}/bin/jupyterhub", "--config", f"{REPO}/deploy/jupyterhub_config.py"),
        *(f"--JupyterHub.bind_url={url}", f"--JupyterHub.hub_port={hub_port}"),
        f"--ConfigurableHTTPProxy.api_url=http://127.0.0.1:{api}",
        "--Spawner.args=--LabApp.expose_app_in_browser=True",
        *(["--Spawner.args=--allow-root"] if os.geteuid() == 0 else []),
    ]
    with (folder / "hub.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=state, env=environment(folder), stdout=log, stderr=log
        )
        try:
            wait_for(f"{url}/hub/health", process)
            yield url
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def environment(folder: Path) -> dict[str, str]:
    """Return what the hub reads: no settings of the caller for the course or Jupyter."""
    ours = ("COURSE_", "PYTHONPATH", "JUPYTER")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(ours)}
    path = os.pathsep.join([f"{folder}/bin", f"{folder}/node_modules/.bin", os.environ["PATH"]])
    return kept | {
        "PATH": path,
        "COURSE_SPAWNER": "local",
        "COURSE_LEARNERS": "2",
        "COURSE_PASSWORD": PASSWORD,
        "COURSE_DATA": str(folder / "data"),
    }


def prepare(folder: Path) -> None:
    """Make the environment with the course as a wheel, JupyterHub and its proxy, and the data."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        packages = sysconfig.get_path("purelib", vars={"base": str(folder)})
        Path(packages, "shared.pth").write_text(sysconfig.get_path("purelib") + "\n", "utf-8")
        for part in ("etc", "share"):  # where JupyterLab finds its pages and settings
            shutil.copytree(Path(sys.prefix, part), folder / part, dirs_exist_ok=True)
        proxy = ["npm", "install", "--prefix", str(folder), "configurable-http-proxy"]
        subprocess.run(proxy, check=True)
    pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    pins = ["-r", f"{REPO}/deploy/hub.txt", "-c", f"{REPO}/requirements.lock"]
    subprocess.run([*pip, *pins], check=True)
    with tempfile.TemporaryDirectory() as source:
        copy_sources(Path(source))
        subprocess.run([*pip, "--no-deps", "--force-reinstall", source], check=True)
    course = [f"{folder}/bin/course", "data", "--size", "S"]
    subprocess.run(course, check=True, env=environment(folder), cwd=folder)


def copy_sources(target: Path) -> None:
    """Copy the files of the repository, without what git ignores."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=REPO, capture_output=True, text=True, check=True).stdout
    for name in filter(lambda name: (REPO / name).is_file(), names.splitlines()):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPO / name, target / name)


def times(folder: Path) -> list[tuple[Path, int]]:
    """Return when each file was written."""
    return [(path, path.stat().st_mtime_ns) for path in sorted(folder.rglob("*"))]


def free_ports(count: int) -> list[int]:
    """Return free ports."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until the hub answers."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    give_up = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < give_up:
        with contextlib.suppress(OSError):
            opener.open(url, timeout=1).close()
            return
        time.sleep(0.2)
    raise SystemExit("The hub did not start. The reason is at the end of hub.log in the folder.")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
