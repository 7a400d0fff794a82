"""A kernel that can be interrupted in the middle of a cell."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Empty
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager, start_new_kernel

from tests.hangs import stacks

Output = tuple[str, dict[str, Any]]  # the type of a message, and its content


@dataclass(frozen=True)
class Result:
    """What a cell showed, and whether it was interrupted."""

    outputs: list[Output]
    interrupted: bool

    @property
    def text(self) -> str:
        return "".join(map(_text, self.outputs))

    @property
    def error(self) -> str:
        """The name of the error that ended it, or an empty string."""
        return next((content["ename"] for kind, content in self.outputs if kind == "error"), "")

    def shown(self, mime: str) -> list[Any]:
        """What it showed in the format `mime`."""
        data = (content.get("data", {}) for _, content in self.outputs)
        return [shown[mime] for shown in data if mime in shown]


class Kernel:
    """A running kernel."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient):
        self.manager, self.client = manager, client

    def run(self, code: str) -> str:
        """Run a cell to its end and return what it printed or showed."""
        return self.result(code).text

    def interrupt(self, code: str, *, at: str) -> str:
        """Run a cell, interrupt it once it has printed `at`, and return everything it showed."""
        return self._run(code, lambda seen: at in "".join(map(_text, seen))).text

    def result(self, code: str, *, patience: float = float("inf")) -> Result:
        """Run a cell, and interrupt it if it is not done after `patience` seconds."""
        wake = time.monotonic() + patience
        return self._run(code, lambda _: time.monotonic() > wake)

    def _run(self, code: str, is_enough: Callable[[list[Output]], bool]) -> Result:
        seen: list[Output] = []
        interrupted = False
        for output in self._outputs(self.client.execute(code)):
            if output is not None:
                seen.append(output)
            if not interrupted and is_enough(seen):
                interrupted = True
                self.manager.interrupt_kernel()
        return Result(seen, interrupted)

    def _outputs(self, message_id: str) -> Iterator[Output | None]:
        """Yield what a cell shows until it is done; None every now and then."""
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            yield None
            try:
                message: dict[str, Any] = self.client.get_iopub_msg(timeout=0.05)
            except Empty:
                continue
            if message["parent_header"].get("msg_id") != message_id:
                continue
            if message["content"].get("execution_state") == "idle":
                return
            yield message["msg_type"], message["content"]
        raise TimeoutError(f"The cell did not come to its end.\n{stacks()}")


def _text(output: Output) -> str:
    kind, content = output
    if kind == "execute_result":
        return str(content["data"]["text/plain"])
    return str(content.get({"stream": "text", "error": "ename"}.get(kind, ""), ""))


@contextmanager
def running_kernel(folder: Path) -> Iterator[Kernel]:
    """Start a kernel in `folder`, and end it."""
    manager, client = start_new_kernel(cwd=str(folder))
    try:
        yield Kernel(manager, client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
