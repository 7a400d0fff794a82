"""Distribute the tests over processes in groups, with the longest group first.

`durations.json` contains the seconds of each group, and `make durations` updates it. A group that
is not there fails the run, since it may start last and alone.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

DURATIONS = Path(__file__).with_name("durations.json")
# the group in the ID of a test, which is usually the file
APART = re.compile(
    r"""tests/browser/  # one JupyterLab and one Chromium serve all of them
    | tests/notebooks/test_notebooks\.py::[^@]*  # each notebook separately
    | tests/exercises/test_attempts\.py::\w+\[\d\d  # the exercises of a notebook
    | [^:]*""",
    re.VERBOSE,
)


def group_of(nodeid: str) -> str:
    """Return the group of a test; a group runs in one process."""
    found = APART.match(nodeid)
    assert found is not None
    return found[0]


def seconds_of(reports: Iterable[object]) -> Counter[str]:
    """Return the seconds of each group, the longest first."""
    seconds = Counter[str]()
    for report in reports:
        if isinstance(report, pytest.TestReport):
            seconds[group_of(report.nodeid)] += report.duration
    return Counter(dict(seconds.most_common()))


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
    known = json.loads(DURATIONS.read_text("utf-8"))
    items.sort(
        key=lambda item: (
            item.get_closest_marker("first") is None,
            -known.get(group_of(item.nodeid), 0.0),
        )
    )


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Store the durations if --store-durations is given, and else fail for an unknown group."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not session.config.getoption("numprocesses", None):
        return  # a process that runs tests for another one, or without others
    seconds = seconds_of(report for group in reporter.stats.values() for report in group)
    if session.config.getoption("--store-durations"):
        rounded = {group: round(took, 1) for group, took in seconds.items()}
        DURATIONS.write_text(json.dumps(rounded, indent=1) + "\n", "utf-8")
        return
    if "COURSE_TEST_MATRIX" in os.environ:
        return  # some groups are part of a full run only
    known = json.loads(DURATIONS.read_text("utf-8"))
    if unknown := seconds.keys() - known.keys():
        print(f"\nRun `make durations`, which does not know {', '.join(sorted(unknown))}.")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
