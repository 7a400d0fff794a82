"""Messages from public threads lead to the right entry, and unrelated messages to none."""

import tomllib
from pathlib import Path

import pytest

from keepfed.field_guide import entries, look_up

MESSAGES = tomllib.loads(
    Path(__file__).with_name("field_guide_messages.toml").read_text("utf-8"),
)
POSTED = [pytest.param(*one.values(), id=one["thread"][19:]) for one in MESSAGES["posted"]]


@pytest.mark.parametrize(("thread", "entry", "says"), POSTED)
def test_posted_message_finds_its_entry(thread: str, entry: str, says: str) -> None:
    found = [one.name for one in look_up(says)]
    assert entry in found if entry else not found, thread
    assert len(found) <= 2, thread


@pytest.mark.parametrize("says", MESSAGES["not_ours"]["says"])
def test_unrelated_message_finds_no_entry(says: str) -> None:
    assert look_up(says) == []


def test_log_with_all_messages_finds_all_entries() -> None:
    log = "\n".join(one["says"] for one in MESSAGES["posted"])
    special = {one["entry"] for one in MESSAGES["posted"] if one["entry"]}
    special -= {name for name in special if entries()[name].general}
    assert special <= {entry.name for entry in look_up(log)}
