"""Files that every process opens itself; the tests of formats check that workers read them."""

import gc
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from keepfed.loaders.workers import LazyFile, worker


def test_file_opens_on_first_use_and_is_pickled_closed(tmp_path: Path) -> None:
    np.save(tmp_path / "numbers.npy", np.arange(3))
    mapped = LazyFile(np.load, tmp_path / "numbers.npy", mmap_mode="r")  # a memmap has no close()
    opened = LazyFile(open, tmp_path / "numbers.npy", "rb")
    for lazy in (mapped, mapped, opened, opened):
        assert lazy._file is None
        assert lazy.file is lazy.file
        sent = pickle.dumps(lazy)
        assert len(sent) < 500
        assert pickle.loads(sent)._file is None
        lazy.close()
        lazy.close()
    assert pickle.loads(pickle.dumps(mapped)).file.tolist() == [0, 1, 2]


def test_only_an_own_forgotten_file_closes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()  # frees files forgotten by earlier tests
    (tmp_path / "file").write_bytes(b"")
    lazy = LazyFile(open, tmp_path / "file", "rb")
    of_parent = lazy.file
    kept: list[object] = []
    monkeypatch.setattr(worker, "keep_inherited", kept.append)
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: -7)
        own = lazy.file
        assert own is not of_parent
        del lazy
        gc.collect()
    assert own.closed
    assert not of_parent.closed
    assert kept == [of_parent]
    of_parent.close()


def test_opener_that_cannot_be_pickled_is_rejected(tmp_path: Path) -> None:
    with (tmp_path / "x").open("w") as file:
        for opener in (file, lambda: 1):
            with pytest.raises(TypeError, match=r"defined at the top level of a module"):
                LazyFile(opener)  # type: ignore[arg-type]
