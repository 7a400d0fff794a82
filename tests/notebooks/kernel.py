"""A kernel that runs and interrupts cells like a learner, and returns their outputs."""

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
import psutil
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager
from nbformat import NotebookNode

from course_utils.teaching.exercise import VERDICT_MIME

Output = Mapping[str, Any]  # in the format of a notebook file
_SHOWN = ("stream", "display_data", "execute_result", "error")
# Other programs hardly change the CPU time of a cell. The longest cells take 20 s of it.
_MOST_CPU_S = 40
_HANGS_S = 500  # seconds of wall time


@dataclass(frozen=True)
class Result:
    outputs: list[Output]

    @property
    def text(self) -> str:
        """Printed and returned text, and the names of errors."""
        return "".join(map(_text, self.outputs))

    @property
    def error(self) -> str:
        """The name of the error that ended the cell, or an empty string."""
        return next((out["ename"] for out in self.outputs if out["output_type"] == "error"), "")


def verdicts(outputs: Iterable[Output]) -> list[tuple[str, str]]:
    """Return the exercise number and the status of each check."""
    fields: list[Any] = [out.get("data", {}).get(VERDICT_MIME) for out in outputs]
    return [(field["exercise"], field["status"]) for field in fields if field]


def complaints(outputs: Iterable[Output]) -> list[str]:
    """Return the errors and warnings on stderr, without progress bars."""
    lines = [
        line for out in outputs if out.get("name") == "stderr" for line in out["text"].splitlines()
    ]
    return [line for line in lines if re.search(r"Error|Warning|Traceback", line)]


class Kernel:
    def __init__(self, manager: KernelManager, client: BlockingKernelClient):
        self.manager, self.client = manager, client

    def cpu_s(self) -> float:
        """Return the CPU time so far of the kernel and its child processes, in seconds."""
        kernel = psutil.Process(self.manager.provisioner.pid)
        spent = 0.0
        for process in (kernel, *kernel.children(recursive=True)):
            with suppress(psutil.Error):  # ended meanwhile
                spent += sum(process.cpu_times()[:4])  # with those of its ended children
        return spent

    def run(self, code: str) -> str:
        return self.result(code).text

    def interrupt(self, code: str, *, at: str) -> Result:
        """Run a cell, and interrupt it after it has printed `at`."""
        return self._run(code, lambda seen: at in "".join(map(_text, seen)))

    def result(self, code: str) -> Result:
        return self._run(code, lambda _: False)

    def _run(self, code: str, is_enough: Callable[[list[Output]], bool]) -> Result:
        seen: list[Output] = []
        interrupted = False
        try:
            for output in self._outputs(self.client.execute(code, allow_stdin=False)):
                if output is not None:
                    seen.append(output)
                if not interrupted and is_enough(seen):
                    interrupted = True
                    self.manager.interrupt_kernel()
        except TimeoutError as error:
            error.add_note(f"{interrupted=}, outputs so far: {seen}")
            raise
        return Result(seen)

    def _outputs(self, message_id: str) -> Iterator[Output | None]:
        """Yield the outputs of a cell until it has finished, and sometimes None."""
        deadline = time.monotonic() + _HANGS_S
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
            if message["msg_type"] in _SHOWN:
                yield {"output_type": message["msg_type"], **message["content"]}
        raise TimeoutError("The cell did not finish.")


def _text(output: Output) -> str:
    if output["output_type"] == "execute_result":
        return str(output["data"]["text/plain"])
    return str(output.get({"stream": "text", "error": "ename"}.get(output["output_type"], ""), ""))


@contextmanager
def running_kernel(folder: Path, **env: str) -> Iterator[Kernel]:
    """Start a kernel in `folder`, with `env` added to the environment, and end it."""
    # Use sockets in a private folder, because another kernel may take a free port at any moment.
    # Deleting the folder also removes the temporary files of a killed kernel.
    transport = "tcp" if os.name == "nt" else "ipc"
    with TemporaryDirectory(ignore_cleanup_errors=True) as temp:  # socket names must be short
        manager = KernelManager(transport=transport, connection_file=f"{temp}/kernel.json")
        manager.start_kernel(cwd=str(folder), env={**os.environ, "TMPDIR": temp, **env})
        client = manager.client()
        try:
            client.start_channels()
            client.wait_for_ready(timeout=_HANGS_S)
            yield Kernel(manager, client)
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)


def code_cells(notebook: Path) -> list[NotebookNode]:
    """Return the cells that "Run All" runs."""
    return [cell for cell in nbformat.read(notebook, 4).cells if cell.cell_type == "code"]


def run_all(cells: Iterable[NotebookNode], folder: Path, **env: str) -> tuple[list[Output], float]:
    """Run cells like "Run All", fail on errors, and return the outputs and the CPU time in seconds.

    Warnings count as errors too. Cells tagged `raises-exception` may fail.
    """
    shown: list[Output] = []
    with running_kernel(folder, **env) as kernel:
        for cell in cells:
            before_s = kernel.cpu_s()
            outputs = kernel.result(cell.source).outputs
            took_s = kernel.cpu_s() - before_s
            assert took_s < _MOST_CPU_S, f"{took_s:.0f} s of CPU time: {cell.source}"
            if "raises-exception" not in cell.metadata.get("tags", ()):
                errors = [out["traceback"] for out in outputs if out["output_type"] == "error"]
                assert not errors, "\n".join([cell.source, *errors[0]])
                assert not complaints(outputs), cell.source
            shown += outputs
        return shown, kernel.cpu_s()
