"""Messages from public threads lead to the right entry, and unrelated messages to none."""

import tomllib
from pathlib import Path

from keepfed.auditing.report import kinds
from keepfed.field_guide import answer, elsewhere, entries, explain, look_up

MESSAGES = tomllib.loads(Path(__file__).with_name("field_guide_messages.toml").read_text("utf-8"))
POSTED = [(posted["says"], posted["entry"]) for posted in MESSAGES["posted"]]
OTHER = """Traceback (most recent call last):
  File "train.py", line 57, in step
  File "/usr/lib/python3.11/site-packages/pandas/series.py", line 7, in get
KeyError: 'img_00231'"""
WARNING = "UserWarning: The given NumPy array is not writable, and PyTorch does not support non-"
TIMEOUT = "[rank1]: [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)"
FILES = "OSError: [Errno 24] Too many open files"
SHM = "RuntimeError: unable to allocate shared memory(shm) for file </torch_1>"
STEPS = "step 7\n" * 2000
WORKER = "KeyError: Caught KeyError in DataLoader worker process 3.\nOriginal "
PINNED = "RuntimeError: Caught RuntimeError in pin memory thread for device 0.\nRuntimeError: "


def names(text: str) -> list[str]:
    return [entry.name for entry in look_up(text)]


def test_posted_message_finds_its_entry_first() -> None:
    for says, entry in POSTED:
        assert (names(says)[:1], names(says)[3:]) == ([entry] * bool(entry), []), says


def test_message_that_is_not_about_loading_is_told_so() -> None:
    for says in MESSAGES["not_ours"]["says"]:
        assert look_up(says) == [], says
    for says in [f"RuntimeError: {message}" for row in elsewhere() for message in row.messages]:
        assert explain(says).startswith("Not about loading data: "), says


def test_log_with_all_messages_finds_all_causes() -> None:
    log = "\n".join(says for says, _ in POSTED).replace("DataLoader worker process", "worker")
    known = [entries()[name] for _, name in POSTED if name]
    assert {entry.name for entry in known if entry.messages and not entry.rank} <= {*names(log)}


def test_cause_near_the_last_error_wins_over_wrappers_and_noise() -> None:
    for before, after in ((WARNING, ""), ("", TIMEOUT), (WARNING, TIMEOUT)):
        assert look_up(f"{before}\n{OTHER}\n{after}") == []
        assert "'img_00231' (train.py, line 57, in step)" in explain(f"{before}\n{OTHER}\n{after}")
    for log, found, says in (
        (f"{FILES}\n{SHM}", ["shm_full", "open_files"], ""),
        (f"{SHM}\n{FILES}", ["open_files", "shm_full"], ""),
        (f"{SHM}\nOutOfMemoryError: CUDA out of memory", [], "Not about loading data: GPU "),
        (f"{PINNED}CUDA error: out of memory", [], "Not about loading data: GPU memory"),
        (f"{SHM}\n{STEPS}{OTHER}", [], "Not known. The first error is RuntimeError: unable"),
        (f"{PINNED}no luck", [], "Not known. The first error is RuntimeError: no luck."),
        (f"{WORKER}{OTHER}", ["error_in_worker"], "In this text: KeyError: 'img_00231' (train.py,"),
    ):
        assert names(log) == found, log
        assert explain(log).startswith(says), log


def test_general_message_is_an_answer_only_in_a_text_about_loading() -> None:
    for general, entry in (
        ("requests.exceptions.ReadTimeout: Read timed out.", "connection_lost"),
        ("ValueError: I/O operation on closed file", "closed_file"),
    ):
        assert look_up(general) == []
        assert f"\n  - {entries()[entry].title}: `keepfed why {entry}`" in explain(general)
        assert names(f'  File "data.py", line 3, in __getitem__\n{general}') == [entry]


def test_plain_words_are_answered_by_a_question() -> None:
    for words, entry in MESSAGES["asked"].items():
        assert entry in names(words), words
        assert len(names(words)) <= 3, words
    asked = "Is it one of these?\n  - The GPU waits for data: `keepfed why waiting_gpu`"
    assert explain("my gpu is at 20 % since May").startswith(asked)
    assert all(answer(kind.entry).entries for kind in kinds().values() if kind.entry)
    assert [words for words in MESSAGES["asked_elsewhere"]["says"] if look_up(words)] == []
