"""The field guide: its entries are whole, and each is found by what it says and is about."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from course_utils import paths
from keepfed.field_guide import ANY, TOPICS, Entry, entries, look_up

ENTRIES = [pytest.param(entry, id=name) for name, entry in entries().items()]
each = pytest.mark.parametrize("entry", ENTRIES)


@each
def test_an_entry_is_whole(entry: Entry) -> None:
    assert entry.topic in TOPICS
    assert all([entry.title, entry.why, entry.do, entry.shows, entry.then])
    assert not entry.title.endswith(".")
    assert entry.why.endswith((".", ".)"))
    assert entry.do.endswith(".")
    assert re.fullmatch(r"\d\d", entry.notebook)
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", thread) for thread in entry.threads)
    assert {line[:1] for line in entry.program.splitlines()} <= {"", " ", "+", "-"}
    assert entry.broken != entry.mended


@each
def test_an_entry_is_found_by_its_messages_and_its_title(entry: Entry) -> None:
    for message in entry.says:
        for what in ("7", "some_name"):
            log = f"Epoch 3:  12%\r\x1b[31m{message.replace(ANY, what)}\x1b[0m\nand more\n"
            found = look_up(log)
            assert entry in found or entry.general
            assert look_up(f"word: {message}")
    assert entry in look_up(entry.title)


def test_the_programs_are_in_the_style_of_the_course(tmp_path: Path) -> None:
    for entry in entries().values():
        (tmp_path / f"{entry.name}_broken.py").write_text(entry.broken, "utf-8")
        (tmp_path / f"{entry.name}_mended.py").write_text(entry.mended, "utf-8")
    ruff = [sys.executable, "-m", "ruff", "--config", str(paths.REPO / "pyproject.toml")]
    select = ["--select", "E,F,I,UP", "--ignore", "E402,F401"]
    for command in (["check", *select], ["format", "--check"]):
        done = subprocess.run(
            [*ruff, *command, str(tmp_path)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("Bus error", "shm_full"),
        ("same random numbers", "same_numbers"),
        ("the same order in every epoch", "same_order"),
        ("Trying to resize storage", "sizes"),
        ("the DataLoader is stuck", "unpicklable"),
        ("duplicates", "served_twice"),
    ],
)
def test_words_and_parts_of_a_message_find_an_entry(words: str, name: str) -> None:
    assert name in [entry.name for entry in look_up(words)]


def test_a_general_message_counts_only_where_nothing_else_is_known() -> None:
    general = "RuntimeError: DataLoader worker (pid(s) 17) exited unexpectedly"
    special = "AttributeError: Can't get attribute 'Events' on <module '__main__' (built-in)>"
    assert [entry.name for entry in look_up(general)] == ["exited"]
    assert [entry.name for entry in look_up(f"{special}\n{general}")] == ["class_in_notebook"]


def test_a_message_is_not_put_together_from_far_apart() -> None:
    assert look_up("Error: Timed out waiting" + " and so on" * 100 + "ms for recv operation") == []
