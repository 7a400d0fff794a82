"""Distribute the tests over processes in groups, with the longest group first.

`durations.json` contains the seconds of each group. `make durations` updates it.
"""

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

DURATIONS = Path(__file__).with_name("durations.json")
LEAST_S = 1.0  # seconds; the order of shorter groups does not matter
# the group in the ID of a test, which is usually the file
APART = re.compile(
    r"""tests/browser/  # one JupyterLab and one Chromium serve all of them
    | tests/notebooks/test_(notebooks|interrupts)\.py::[^@]*  # each notebook separately
    | tests/exercises/test_attempts\.py::\w+\[\d\d  # the exercises of a notebook
    | [^:]*""",
    re.VERBOSE,
)


def group_of(nodeid: str) -> str:
    """Return the group of a test; a group runs in one process."""
    found = APART.match(nodeid)
    assert found is not None
    return found[0]


class Groups(LoadScopeScheduling):  # type: ignore[misc]
    """Assign complete groups to processes, in the order of the tests.

    The option `--dist loadgroup` uses marks, which xdist 3.8 loses with pytest 9.2:
    https://github.com/pytest-dev/pytest-xdist/issues/1386
    """

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Groups:
    """Distribute the tests by group if there are several processes."""
    config.option.loadscopereorder = False  # else the groups with the most tests come first
    return Groups(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--store-durations", action="store_true", help=f"write {DURATIONS.name}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest groups first, after the tests marked `first`.

    The marked tests need processes in which no other test has run.
    """
    seconds: dict[str, float] = json.loads(DURATIONS.read_text("utf-8"))
    items.sort(
        key=lambda item: (
            item.get_closest_marker("first") is None,
            -seconds.get(group_of(item.nodeid), 0.0),
        )
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write the durations if --store-durations is given."""
    if not terminalreporter.config.getoption("--store-durations"):
        return
    seconds = Counter[str]()
    for report in (one for group in terminalreporter.stats.values() for one in group):
        if isinstance(report, pytest.TestReport):
            seconds[group_of(report.nodeid)] += report.duration
    kept = {name: round(took, 1) for name, took in seconds.most_common() if took >= LEAST_S}
    DURATIONS.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
