"""A kernel that can be interrupted in the middle of a cell."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager, start_new_kernel

Output = tuple[str, dict[str, Any]]  # the type of a message, and its content


class Kernel:
    """A running kernel and what its cells show."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient):
        self.manager, self.client = manager, client

    def run(self, code: str) -> str:
        """Run a cell to its end and return what it printed or showed."""
        return "".join(map(_text, self._outputs(self.client.execute(code))))

    def error(self, code: str) -> str:
        """Run a cell to its end and return the name of the error that ended it, or ""."""
        outputs = list(self._outputs(self.client.execute(code)))
        return next((content["ename"] for kind, content in outputs if kind == "error"), "")

    def interrupt(self, code: str, *, at: str) -> str:
        """Run a cell, interrupt it once it prints `at`, and return everything it showed."""
        seen, interrupted = "", False
        for output in self._outputs(self.client.execute(code)):
            seen += _text(output)
            if at in seen and not interrupted:  # what is printed may come in one piece or several
                interrupted = True
                self.manager.interrupt_kernel()
        return seen

    def interrupt_if_longer(self, code: str, *, seconds: float) -> bool:
        """Run a cell; interrupt it if it is not done after `seconds`, and tell whether it was."""
        wake, late = time.monotonic() + seconds, False

        def interrupt_once() -> None:
            nonlocal late
            if not late and time.monotonic() > wake:
                late = True
                self.manager.interrupt_kernel()

        for _ in self._outputs(self.client.execute(code), meanwhile=interrupt_once):
            pass
        return late

    def _outputs(
        self, message_id: str, meanwhile: Callable[[], None] = lambda: None
    ) -> Iterator[Output]:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            meanwhile()
            try:
                message: dict[str, Any] = self.client.get_iopub_msg(timeout=0.05)
            except Empty:
                continue
            content = message["content"]
            if message["parent_header"].get("msg_id") != message_id:
                continue
            if content.get("execution_state") == "idle":
                return
            yield message["msg_type"], content
        raise TimeoutError("The cell did not come to its end.")


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
