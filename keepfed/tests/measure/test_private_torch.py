"""The list of private torch names is complete, and the installed torch has all of them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

import keepfed
from keepfed.private_torch import PRIVATE, missing
from tests.measure.datasets import Numbers

PACKAGE = Path(keepfed.__file__).parent
USED = r"(?:(?:\w|[\])])\.|\")(_[a-z]\w*[a-z0-9])\b"  # as an attribute or a string
# functions, methods, classes, variables, fields, and attributes set with `self.name = ...`
OWN = r"(?:\b(?:def|class) |^[ \w,]*|\b(?:self|cls)\.)\b(_[a-z]\w*)(?=\(|\[| =|:|,| \+=)"
# Private names of other libraries and of namedtuples, and attributes that keepfed adds to torch.
ELSEWHERE = {
    "_exit", "_getframe", "_make", "_replace", "_render_traceback_", "_forkserver",
    "_forkserver_pid", "_preload_modules", "_process_children", "_pid", "_strip_protocol",
    "_emulated_pinned", "_trace_batch", "_asdict", "_step_timer", "_connections", "_showtraceback",
    "_fix_co_filename", "_fields", "_cache", "_current_frames", "_next_index",
    "_indices", "_take_report", "_bootstrap", "_model", "_draw", "_view",
}  # fmt: skip


@pytest.mark.slow
def test_installed_torch_has_every_private_name() -> None:
    loader = DataLoader(Numbers(4), num_workers=1)
    iterator = iter(loader)
    owners = {"its iterator with workers": iterator, "its iterator": iter(DataLoader(Numbers(4)))}
    assert missing({"torch": torch, "a DataLoader": loader, **owners}) == ()
    list(iterator)


def test_list_contains_every_private_name_in_use() -> None:
    listed = {part for private in PRIVATE for part in private.name.split(".")}
    texts = [path.read_text("utf-8") for path in PACKAGE.rglob("*.py")]
    used = {name for text in texts for name in re.findall(USED, text)}
    own = {name for text in texts for name in re.findall(OWN, text, re.M)}
    assert len(used) > 20
    assert used - own - ELSEWHERE <= listed


def test_list_of_private_names_does_not_import_torch() -> None:
    code = "import sys, keepfed.private_torch; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
