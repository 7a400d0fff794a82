"""Messages from public threads lead to the right entry, and unrelated messages to none."""

import tomllib
from pathlib import Path

from keepfed.field_guide import entries, explain, look_up, not_known
from keepfed.field_guide.elsewhere import ELSEWHERE

MESSAGES = tomllib.loads(Path(__file__).with_name("field_guide_messages.toml").read_text("utf-8"))
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


def test_posted_message_finds_its_entry_first() -> None:
    for posted in MESSAGES["posted"]:
        found = [entry.name for entry in look_up(posted["says"])]
        assert found[:1] == ([posted["entry"]] if posted["entry"] else []), posted
        assert len(found) <= 2, posted


def test_message_that_is_not_about_loading_is_told_so() -> None:
    for says in MESSAGES["not_ours"]["says"]:
        assert look_up(says) == [], says
        assert not_known(says).startswith(("Not about loading data: ", "Not known. ")), says
    for message in ELSEWHERE:
        assert look_up(f"RuntimeError: {message}") == [], message
        assert explain(f"RuntimeError: {message}").startswith("Not about loading data: "), message


def test_log_with_all_messages_finds_all_causes() -> None:
    log = "\n".join(one["says"] for one in MESSAGES["posted"])
    causes = {one["entry"] for one in MESSAGES["posted"] if one["entry"]}
    causes = {name for name in causes if entries()[name].messages and not entries()[name].rank}
    assert causes <= {entry.name for entry in look_up(log)}


def test_error_of_the_caller_wins_over_warnings_and_timeouts() -> None:
    for before, after in ((WARNING, ""), ("", TIMEOUT), (WARNING, TIMEOUT)):
        log = f"{before}\n{OTHER}\n{after}"
        assert look_up(log) == []
        assert "KeyError: 'img_00231' (train.py, line 57, in step)" in not_known(log)


def test_error_in_a_worker_is_named_with_its_line() -> None:
    log = f"KeyError: Caught KeyError in DataLoader worker process 3.\nOriginal {OTHER.lstrip()}"
    assert [entry.name for entry in look_up(log)] == ["error_in_worker"]
    assert explain(log).startswith("In this text: KeyError: 'img_00231' (train.py, line 57")
