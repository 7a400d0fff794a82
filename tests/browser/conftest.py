"""One JupyterLab, started as learners start it, and one Chromium for all browser tests."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, sync_playwright

from course_utils.command import lab
from tests.browser.lab_page import FIRST, GuardedPage, LabPage

_FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
    "--disable-component-update", "--disable-default-apps", "--disable-sync", "--no-first-run",
    "--metrics-recording-only", "--force-color-profile=srgb", "--font-render-hinting=none",
    # block other machines here, because `route` would disable the browser cache
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
]  # fmt: skip


@pytest.fixture(scope="session")
def chromium() -> Iterator[BrowserContext]:
    """Return a browser context whose pages share a cache.

    Without a browser the tests are skipped, or fail if $COURSE_REQUIRE_BROWSER is set.
    """
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    executable = next(filter(None, map(shutil.which, names)), None)
    if executable is None:
        refuse = pytest.fail if os.environ.get("COURSE_REQUIRE_BROWSER") else pytest.skip
        refuse("Chromium is missing. Install it (Debian, Ubuntu: apt install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=_FLAGS)
        yield browser.new_context(viewport={"width": 1400, "height": 1000}, reduced_motion="reduce")
        browser.close()


@pytest.fixture
def guarded_page(chromium: BrowserContext) -> Iterator[GuardedPage]:
    """Return a window for files that blocks and records requests to other machines."""
    page = GuardedPage(chromium)
    yield page
    page.close()


@pytest.fixture(scope="session")
def lab_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the root folder of JupyterLab; put notebooks into its `work` folder."""
    root = tmp_path_factory.mktemp("lab")
    (root / "work").mkdir()
    return root


@pytest.fixture(scope="session")
def lab_server(chromium: BrowserContext, lab_root: Path) -> Iterator[lab.Server]:
    """Return a running JupyterLab, started like `course lab`."""
    state = lab_root / ".jupyter"
    (state / "config").mkdir(parents=True)
    own = '{"LabApp": {"expose_app_in_browser": true}}'
    (state / "config" / "jupyter_lab_config.json").write_text(own)
    with lab.serve(lab_root, FIRST, state=state, port=0) as server:
        yield server


@pytest.fixture
def lab_page(chromium: BrowserContext, lab_server: lab.Server) -> Iterator[LabPage]:
    page = LabPage(chromium, url=lab_server.url)
    yield page
    page.close()
