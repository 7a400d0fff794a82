"""Messages from public threads lead to the right entry, and unrelated messages to none."""

import tomllib
from pathlib import Path

import pytest

from keepfed.field_guide import entries, explain, look_up, not_known
from keepfed.field_guide.elsewhere import ELSEWHERE

MESSAGES = tomllib.loads(
    Path(__file__).with_name("field_guide_messages.toml").read_text("utf-8"),
)
POSTED = [
    pytest.param(*one.values(), id=one["thread"][19:] or one["says"][:40])
    for one in MESSAGES["posted"]
]
OTHER = """
Traceback (most recent call last):
  File "train.py", line 57, in step
    label = labels[name]
  File "/usr/lib/python3.11/site-packages/pandas/series.py", line 7, in get
    raise KeyError(key)
KeyError: 'img_00231'
"""
WARNING = (
    "UserWarning: The given NumPy array is not writable, and PyTorch does not support non-writable "
    "tensors."
)
TIMEOUT = "[rank1]: [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)"


@pytest.mark.parametrize(("thread", "entry", "says"), POSTED)
def test_posted_message_finds_its_entry_first(thread: str, entry: str, says: str) -> None:
    found = [one.name for one in look_up(says)]
    assert found[:1] == [entry] if entry else not found, thread
    assert len(found) <= 2, thread


@pytest.mark.parametrize("says", MESSAGES["not_ours"]["says"])
def test_unrelated_message_finds_no_entry(says: str) -> None:
    assert look_up(says) == []
    assert not_known(says).startswith(("Not about loading data: ", "Not known. "))


def test_log_with_all_messages_finds_all_causes() -> None:
    log = "\n".join(one["says"] for one in MESSAGES["posted"])
    causes = {one["entry"] for one in MESSAGES["posted"] if one["entry"]}
    causes = {name for name in causes if entries()[name].messages and not entries()[name].rank}
    assert causes <= {entry.name for entry in look_up(log)}


@pytest.mark.parametrize("around", [(WARNING, ""), ("", TIMEOUT), (WARNING, TIMEOUT)])
def test_error_of_the_caller_wins_over_warnings_and_timeouts(around: tuple[str, str]) -> None:
    log = f"{around[0]}\n{OTHER}\n{around[1]}"
    assert look_up(log) == []
    assert "KeyError: 'img_00231' (train.py, line 57, in step)" in not_known(log)


def test_error_in_a_worker_is_named_with_its_line() -> None:
    log = f"KeyError: Caught KeyError in DataLoader worker process 3.\nOriginal {OTHER.lstrip()}"
    assert [entry.name for entry in look_up(log)] == ["error_in_worker"]
    assert explain(log).startswith("In this text: KeyError: 'img_00231' (train.py, line 57")


@pytest.mark.parametrize("message", ELSEWHERE)
def test_text_that_is_not_about_loading_is_told_so(message: str) -> None:
    assert look_up(f"RuntimeError: {message}") == []
    assert explain(f"RuntimeError: {message}").startswith("Not about loading data: ")
