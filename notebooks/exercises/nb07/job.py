"""Run a learner's `stage` in a process of its own: watched, held up, or ended half way.

    python job.py '{"module": "my_staging", "function": "stage", "source": ..., "place": ..., ...}'

It prints a line of JSON for each call. Nothing heavy is imported: the check starts several.
"""

import builtins
import errno
import importlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

_LOOK_EVERY_S = 0.01
_PROGRAM = "subprocess.Popen", "os.system"


class Watch:
    """Count who reads `source`, and let the first one wait if the check wants that."""

    def __init__(self, source: str, signs: str, hold: bool):
        self.source, self.hold, self.reads = source, hold, 0
        self.signs = signs  # name that the files of this process begin with
        sys.addaudithook(self.hear)

    def hear(self, event: str, args: tuple[Any, ...]) -> None:
        """Listen to everything that Python reports about itself."""
        reading = event == "open" and self._is_read(*args[:2])
        program = event in _PROGRAM and self.source in str(args[:2])
        if not (reading or program):
            return
        self.reads += 1
        if self.reads == 1:
            self.show("reading")
            while self.hold and not Path(f"{self.signs}.go").exists():
                time.sleep(_LOOK_EVERY_S)

    def show(self, what: str) -> None:
        """Make the empty file that the check looks for."""
        Path(f"{self.signs}.{what}").touch()

    def _is_read(self, path: Any, mode: Any) -> bool:
        if not isinstance(path, str | bytes | os.PathLike):
            return False
        return os.fsdecode(path) == self.source and not set("wax+") & set(mode or "r")


def limit_files(size: int, *, deadly: bool) -> None:
    """Let no file grow beyond `size` bytes: writing on is an error, or the end of the process."""
    try:
        import resource
    except ModuleNotFoundError:
        limit_open(size, deadly=deadly)
        return
    if deadly:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it and raises instead
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def limit_open(size: int, *, deadly: bool) -> None:
    """Do the same where the system knows no such limit; only what `open` returned is limited."""
    real_open = builtins.open

    def limited_open(*args: Any, **kwargs: Any) -> Any:
        file = real_open(*args, **kwargs)
        if file.writable() and hasattr(file, "raw"):
            write = file.write

            def limited(data: bytes) -> int:
                room = max(0, size - file.tell())
                written: int = write(memoryview(data)[:room])
                if len(data) > room:
                    file.flush()
                    if deadly:
                        os._exit(1)
                    raise OSError(27, "File too large")
                return written

            file.write = limited
        return file

    builtins.open = limited_open


def border(place: str, at_border: Callable[[], None]) -> None:
    """Let no renaming lead into `place` or out of it, as if that were a file system of its own.

    Where one is refused, `at_border` is called before.
    """

    def guarded(rename: Callable[..., None]) -> Callable[..., None]:
        def renamed(old: Any, new: Any, **how: Any) -> None:
            roots = {Path(place) in Path(os.path.abspath(path)).parents for path in (old, new)}
            if len(roots) > 1:
                at_border()
                said = os.strerror(errno.EXDEV)
                raise OSError(errno.EXDEV, said, os.fspath(old), None, os.fspath(new))
            rename(old, new, **how)

        return renamed

    for name in "rename", "replace", "link":
        setattr(os, name, guarded(getattr(os, name)))


def main(
    module: str,
    function: str,
    source: str,
    place: str,
    signs: str,
    calls: int = 1,
    hold: bool = False,
    limit: int = 0,
    deadly: bool = False,
    at_border: bool = False,
) -> None:
    """Call a function as often as ordered and print what came of it.

    Args:
        module: where the function is.
        function: its name; it gets `source` and `place`.
        source: the file to stage.
        place: the folder to stage it in.
        signs: what the names of the files begin with by which this process says how far it is.
        calls: how often.
        hold: wait as soon as the source is read, until the file `signs`.go is there.
        limit: bytes that a file may have; 0: any number.
        deadly: to write beyond the limit ends the process, as SIGKILL would.
        at_border: the limit begins where something is to be renamed into `place` from elsewhere.
    """
    stage = getattr(importlib.import_module(module), function)
    watch = Watch(source, signs, hold)

    def begin() -> None:
        if limit:
            limit_files(limit, deadly=deadly)

    border(place, begin if at_border else lambda: None)
    if at_border:  # a program may be mv
        sys.addaudithook(lambda event, _: begin() if event in _PROGRAM else None)
    else:
        begin()
    watch.show("ready")
    for _ in range(calls):
        before = watch.reads
        try:
            outcome = {"returned": os.fspath(stage(source, place))}
        except Exception as error:
            outcome = {"error": _traceback(error)}
        print(json.dumps({**outcome, "reads": watch.reads - before}), flush=True)


def _traceback(error: Exception) -> str:
    """Return the frames and one line with what was raised."""
    said = next(iter(str(error).splitlines()), "")
    return f"{''.join(traceback.format_tb(error.__traceback__))}{type(error).__name__}: {said}"


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
