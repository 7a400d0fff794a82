import re
from pathlib import Path

import pytest

from keepfed.field_guide import ANY, TOPICS, entries, look_up
from tests.fixtures import run_python


def test_entries_are_complete() -> None:
    for name, entry in entries().items():
        assert entry.topic in TOPICS, name
        assert all([entry.title, entry.why, entry.fix]), name
        assert bool(entry.no_program) != all([entry.program, entry.prints, entry.prints_fixed])
        assert not entry.title.endswith("."), name
        assert entry.why.endswith((".", ".)")), name
        assert all(step.endswith(".") for step in entry.fix), name
        assert re.fullmatch(r"\d\d", entry.notebook), name
        assert all(re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", thread) for thread in entry.threads), name
        assert {line[:1] for line in entry.program.splitlines()} <= {"", " ", "+", "-"}, name
        assert entry.without("+") != entry.without("-") or entry.no_program, name


def test_messages_and_titles_find_their_entry() -> None:
    for entry in entries().values():
        for message in entry.messages:
            log = f"Epoch 3:  12%\r\x1b[31m{message.replace(ANY, 'a_name')}\x1b[0m\nand more\n"
            assert entry in look_up(log) or entry.rank > look_up(log)[0].rank, message
            assert look_up(f"word: {message}"), message
        for words in (entry.name, entry.title, *entry.symptoms):
            assert entry in look_up(words), words


def test_programs_pass_ruff(tmp_path: Path) -> None:
    for entry in entries().values():
        (tmp_path / f"{entry.name}_faulty.py").write_text(entry.without("+"), "utf-8")
        (tmp_path / f"{entry.name}_fixed.py").write_text(entry.without("-"), "utf-8")
    width = ["--isolated", "--line-length", "100"]
    packages = 'lint.isort.known-first-party = ["course_utils", "keepfed"]'
    select = [*width, "--config", packages, "--select", "E,F,I,UP", "--ignore", "E402,F401"]
    for command in (["check", *select], ["format", "--check", *width]):
        done = run_python("-m", "ruff", *command, tmp_path)
        assert done.returncode == 0, done.stdout


def test_only_what_belongs_together_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    general = "RuntimeError: DataLoader worker (pid(s) 17) exited unexpectedly"
    special = "AttributeError: Can't get attribute 'Events' on <module '__main__' (built-in)>"
    assert [entry.name for entry in look_up(f"{special}\n{general}")] == ["class_in_notebook"]
    assert look_up("Error: Timed out waiting" + " and so on" * 100 + "ms for recv operation") == []
    monkeypatch.setattr("keepfed.field_guide.log._LOG", 100)  # only the end of a long log
    assert look_up("." * 100 + general)
