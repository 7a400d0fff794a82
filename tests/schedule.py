"""Share the tests out among processes: tests that belong together, the longest group first.

The seconds of each group are in `durations.json`, which `make durations` measures again.
"""

import json
from collections import Counter
from pathlib import Path

import pytest

DURATIONS = Path(__file__).with_name("durations.json")
LEAST_S = 1.0  # seconds of a group below which its place in the order does not matter
APART = ("tests/notebooks/test_notebooks.py", "tests/notebooks/test_interrupts.py")


def group_of(nodeid: str) -> str:
    """Return the group of a test: itself if it runs a notebook, else its file or its browser."""
    file = nodeid.partition("::")[0]
    if file.startswith("tests/browser/"):
        return "tests/browser"  # one JupyterLab and one Chromium serve all of them
    return nodeid.partition("@")[0] if file in APART else file


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--store-durations", action="store_true", help=f"write {DURATIONS.name}")


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with its group, for `--dist loadgroup`, and put the longest groups first.

    Tests marked `first` come before them, in processes in which no other test has run.
    """
    seconds: dict[str, float] = json.loads(DURATIONS.read_text("utf-8"))
    for item in items:
        item.add_marker(pytest.mark.xdist_group(group_of(item.nodeid)))
    items.sort(
        key=lambda item: (
            item.get_closest_marker("first") is None,
            -seconds.get(group_of(item.nodeid), 0.0),
        )
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write the durations if that was asked for."""
    if not terminalreporter.config.getoption("--store-durations"):
        return
    seconds = Counter[str]()
    for report in (one for group in terminalreporter.stats.values() for one in group):
        if isinstance(report, pytest.TestReport):
            seconds[group_of(report.nodeid)] += report.duration
    kept = {name: round(took, 1) for name, took in seconds.most_common() if took >= LEAST_S}
    DURATIONS.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
