"""An accelerator that is not there: the times of a preset, the rules of CUDA, your own data.

    gpu = get_accelerator("RTX 3090", step_ms=20, emulate=True)
    loss = gpu.step(gpu.upload(batch))
    loss.item()

Copies and kernels take their time without any work being done; only a host that waits sleeps.
Kernels run one at a time, also those of different streams.
"""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

import torch

from course_utils.hardware.gpu.batches import PinnedBatches, leaves, map_leaves
from course_utils.hardware.gpu.contents import Content, DeviceTensor, EmulatedLoss, poison
from course_utils.hardware.gpu.memory import Memory, is_pinned, mark_pinned
from course_utils.hardware.gpu.presets import Preset
from course_utils.hardware.gpu.smi import Kernel, Smi, emulated_smi
from course_utils.hardware.gpu.streams import (
    Driver,
    EmulatedEvent,
    EmulatedStream,
    Engine,
    Operation,
    sleep_until,
)
from course_utils.measure.spans import Span, current, stage

UNREAD_LOSSES = 32  # as many losses may be kept unread before the first is computed


class EmulatedAccelerator:
    """A GPU of the kind `preset`, of which no part exists; see `accelerator.Accelerator`."""

    emulated = True

    def __init__(
        self,
        preset: Preset,
        *,
        step_ms: float | None = None,
        clock: Callable[[], int] = time.perf_counter_ns,
        sleep_until: Callable[[int], None] = sleep_until,
    ):
        """Make an idle device; clock and sleep are parameters so that tests need not wait."""
        self.preset = preset
        self.name = f"emulated {preset.name}"
        self.step_ms = preset.step_ms if step_ms is None else step_ms
        self._driver = Driver(clock, sleep_until)
        capacity = round(preset.memory_gib * 2**30)
        self._memory = Memory(self.name, capacity, self._driver, self._download)
        self._compute, self._to_device, self._to_host = Engine(), Engine(), Engine()
        self._kernels: deque[Kernel] = deque(maxlen=100_000)
        self._unread: deque[weakref.ref[EmulatedLoss]] = deque()

    def __repr__(self) -> str:
        """Say that it is emulated, and whose times it has."""
        return f"{self.name} (times of a preset, not of this machine)"

    def Stream(self) -> EmulatedStream:
        """Make a stream."""
        return EmulatedStream(self._driver)

    def Event(self, *, enable_timing: bool = False) -> EmulatedEvent:
        """Make an event."""
        return EmulatedEvent(self._driver, enable_timing=enable_timing)

    def stream(self, stream: EmulatedStream | None) -> AbstractContextManager[None]:
        """Make `stream` the current one of this thread inside the `with` block."""
        return self._driver.use(stream)

    def current_stream(self) -> EmulatedStream:
        """Return the stream that this thread launches on."""
        return self._driver.stream

    def synchronize(self) -> None:
        """Block the host until everything launched is finished."""
        for stream in list(self._driver.streams):
            stream.synchronize()

    def upload(self, batch: Any, *, non_blocking: bool = False) -> Any:
        """Copy the tensors of `batch` to the device.

        From pageable memory the copy is slower and blocks the host even with `non_blocking=True`.
        """
        contents: list[Content] = []

        def copy(leaf: Any) -> Any:
            if not _is_host(leaf):
                return leaf
            contents.append(self._upload(leaf))
            return self._memory.handle(contents[-1])

        with self._driver.lock:
            uploaded = map_leaves(copy, batch)
            staged = [content for content in contents if not is_pinned(content.data)]
            for content in contents:
                borrowed = non_blocking and content not in staged
                (self._memory.borrow if borrowed else self._memory.take)(content)
        if not contents:
            return uploaded
        last = contents[-1].written
        start_ns = contents[0].written.start_ns
        self._record("copy", "transfer", start_ns, last.end_ns, _batch_number())
        if not non_blocking:
            self._driver.wait(last.end_ns, last.known)
        elif staged:  # the host is held up by staging, but is not told when the data have arrived
            self._driver.sleep_until(last.end_ns)
        return uploaded

    def _upload(self, source: torch.Tensor) -> Content:
        rate = self.preset.pinned_gb_s if is_pinned(source) else self.preset.pageable_gb_s
        stream = self.current_stream()
        allocation = self._memory.allocate(source.nbytes, stream)
        copy = stream.launch(self._to_device, round(source.nbytes / rate))
        return Content(source.detach(), allocation, copy, _batch_number())

    def _download(self, content: Content) -> torch.Tensor:
        duration = round(content.data.nbytes / self.preset.pageable_gb_s)
        copy = self.current_stream().launch(self._to_host, duration)
        result = EmulatedLoss(self._driver, copy, [content])
        self._driver.wait(copy.end_ns, copy.known)
        return poison(content.data) if result.spoilt else content.data.clone()

    def step(self, batch: Any, *, ms: float | None = None, occupancy: float = 1.0) -> EmulatedLoss:
        """Launch a training step that reads `batch`; return at once, with a loss to wait for."""
        with self._driver.lock:
            contents = self._contents(batch)
            kernel = self._launch(contents, self.step_ms if ms is None else ms, occupancy)
            loss = EmulatedLoss(self._driver, kernel, contents)
            self._unread.append(weakref.ref(loss))
            oldest = self._unread.popleft()() if len(self._unread) > UNREAD_LOSSES else None
        if oldest:
            oldest.compute()
        return loss

    def launch(
        self, function: Callable[..., Any], *buffers: Any, ms: float, occupancy: float = 1.0
    ) -> Any:
        """Launch a kernel that takes `ms` and return the new tensors of `function(*buffers)`.

        The function gets ordinary tensors and must not change them. It is computed here and now, in
        time of this machine that does not count as the device's.
        """
        with self._driver.lock:
            contents = self._contents(buffers)
            kernel = self._launch(contents, ms, occupancy)
            result = function(*map_leaves(_value, buffers))
            return map_leaves(lambda leaf: self._keep(leaf, kernel, contents), result)

    def _launch(self, contents: list[Content], ms: float, occupancy: float) -> Operation:
        if ms < 0 or not 0 < occupancy <= 1:
            raise ValueError(f"{ms=} has to be 0 or more and {occupancy=} in ]0, 1]: change them.")
        kernel = self.current_stream().launch(self._compute, round(ms * 1e6))
        batch = contents[0].batch if contents else _batch_number()
        self._record("gpu", "compute", kernel.start_ns, kernel.end_ns, batch)
        self._kernels.append(Kernel(kernel.start_ns, kernel.end_ns, occupancy))
        return kernel

    def _keep(self, leaf: Any, kernel: Operation, sources: list[Content]) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        allocation = self._memory.allocate(leaf.nbytes, self.current_stream())
        batch = sources[0].batch if sources else _batch_number()
        content = Content(leaf, allocation, kernel, batch)
        for source in sources:
            source.read(kernel, content)
        self._memory.take(content)
        return self._memory.handle(content)

    def _contents(self, batch: Any) -> list[Content]:
        if any(_is_host(leaf) for leaf in leaves(batch)):
            raise ValueError(
                "The batch is in host memory: copy it first, batch = gpu.upload(batch)."
            )
        tensors = [leaf for leaf in leaves(batch) if isinstance(leaf, DeviceTensor)]
        for tensor in tensors:
            if tensor.device != self.name:
                raise RuntimeError(
                    f"The batch is on the {tensor.device} and the step on the {self.name}: "
                    "upload it to the GPU that computes."
                )
        return [tensor.content for tensor in tensors]

    def pin(self, batch: Any) -> Any:
        """Copy the tensors of `batch` to pinned host memory, which takes the host its time."""
        with stage("transfer", lane="main"):
            start = self._driver.clock()
            pinned = map_leaves(lambda leaf: leaf.clone() if _is_host(leaf) else leaf, batch)
            copied = sum(leaf.nbytes for leaf in leaves(batch) if _is_host(leaf))
            self._driver.sleep_until(start + round(copied / self.preset.pageable_gb_s))
        return map_leaves(mark_pinned, pinned)

    def pinned(self, batches: Iterable[Any]) -> PinnedBatches:
        """Hand over `batches` in pinned memory, as `DataLoader(pin_memory=True)` does on CUDA.

        Its thread pins beside the loop, so this takes no time. (Without CUDA it does not pin.)
        """
        return PinnedBatches(batches, lambda batch: map_leaves(mark_pinned, batch))

    def is_pinned(self, batch: Any) -> bool:
        """Tell whether all tensors of `batch` are in pinned host memory, or pass for it."""
        return all(is_pinned(leaf) for leaf in leaves(batch) if _is_host(leaf))

    def memory_allocated(self) -> int:
        """Return the bytes of device memory in use."""
        with self._driver.lock:
            self._memory.collect()
            return self._memory.used

    def max_memory_allocated(self) -> int:
        """Return the most bytes that were in use at a time."""
        return self._memory.peak

    def smi(self, *, at_ns: int | None = None) -> Smi:
        """Return what nvidia-smi would show now, or would have shown at `at_ns` of the clock."""
        now = self._driver.clock() if at_ns is None else at_ns
        return emulated_smi(
            self.preset, list(self._kernels), now_ns=now, memory_used=self.memory_allocated()
        )

    def _record(self, lane: str, name: str, start_ns: int, end_ns: int, batch: int) -> None:
        trace = current()
        if trace is not None:
            trace.mention(self.name)
            trace.add(Span(lane, name, start_ns, end_ns, batch))


def _is_host(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor)


def _value(leaf: Any) -> Any:
    return leaf.content.data if isinstance(leaf, DeviceTensor) else leaf


def _batch_number() -> int:
    trace = current()
    return -1 if trace is None else trace.batch
