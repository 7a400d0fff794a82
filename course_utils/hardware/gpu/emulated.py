"""An emulated accelerator: the timing of a preset, the rules of CUDA, and your own data.

    gpu = get_accelerator("RTX 3090", step_ms=20, emulate=True)
    loss = gpu.step(gpu.upload(batch))
    loss.item()

Copies and kernels take time without any work. Only a waiting host sleeps. (On CUDA a waiting host
usually spins, which takes a core from the workers.) Kernels run one at a time, even those of
different streams. Launching a kernel, allocating device memory and pinning host memory for the
first time cost nothing here. On CUDA a launch takes microseconds, and new memory takes
milliseconds.
"""

from __future__ import annotations

import sys
import tomllib
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import torch

from course_utils.hardware.clock import HostClock, RealClock
from course_utils.hardware.gpu.cuda import IN_HOST_MEMORY, ON_ANOTHER_GPU
from course_utils.hardware.gpu.loss import Loss, checksum
from course_utils.hardware.gpu.memory import Content, Memory, is_pinned, mark_pinned, poison
from course_utils.hardware.gpu.pinned import PinnedBatches, pin_as_a_loader
from course_utils.hardware.gpu.smi import SAMPLE_NS, Smi
from course_utils.hardware.gpu.streams import (
    Driver,
    EmulatedEvent,
    EmulatedStream,
    Engine,
    Operation,
)
from keepfed.batches import (
    SMALL,
    Handle,
    dense_parts,
    has_gaps,
    leaves,
    map_leaves,
    map_tensors,
    tensors,
)
from keepfed.measure.spans import Span, current, stage

UNREAD_LOSSES = 32  # losses kept unread before the oldest is computed
# Work of the default step, for an imagined model.
STEP_TFLOP = 0.6
# Share of the specified throughput that an imagined training step reaches.
EFFICIENCY = 0.4


COMPUTE = "Compute with gpu.launch(function, tensor, ms=...), or read its values with tensor.cpu()."


@dataclass(frozen=True, kw_only=True)
class Preset:
    """One GPU model and its bus; GB/s are 10**9 bytes per second."""

    name: str
    memory_gib: float  # vendors write GB
    tflops: float  # dense bf16 with float32 accumulation
    pinned_gb_s: float  # host to device
    pageable_gb_s: float
    idle_w: float
    awake_w: float  # a program uses it, but no kernel runs
    max_w: float
    perf: str  # performance state: idle and busy

    @property
    def step_ms(self) -> float:
        """Duration of the default step on this GPU."""
        return STEP_TFLOP / (EFFICIENCY * self.tflops) * 1e3


_FIGURES = tomllib.loads(Path(__file__).with_name("presets.toml").read_text("utf-8"))
PRESETS = {name: Preset(name=name, **figures) for name, figures in _FIGURES.items()}


class Kernel(NamedTuple):
    """Start, end and occupancy of a kernel, past or future."""

    start_ns: int
    end_ns: int
    occupancy: float


class EmulatedAccelerator:
    """An emulated GPU of the kind `preset`; see `accelerator.Accelerator`."""

    emulated, index = True, 0

    def __init__(
        self, preset: Preset, *, step_ms: float | None = None, clock: HostClock | None = None
    ):
        """Create an idle device; with a `VirtualClock`, its times are exact."""
        self.preset = preset
        self.name = f"emulated {preset.name}"
        self.step_ms = preset.step_ms if step_ms is None else step_ms
        self._driver = Driver(clock or RealClock())
        self._memory = Memory(self.name, round(preset.memory_gib * 2**30), self._driver)
        # Once the host knows that a copy has finished, it may overwrite the source.
        self._driver.on_learning = self._memory.settle
        self._compute, self._to_device, self._to_host = Engine(), Engine(), Engine()
        self._kernels: deque[Kernel] = deque(maxlen=100_000)
        self._unread: deque[weakref.ref[EmulatedLoss]] = deque()

    def __repr__(self) -> str:
        return f"{self.name} (times of a preset, not of this machine)"

    def Stream(self) -> EmulatedStream:
        """Return the next of 32 streams, then start again with the first."""
        return self._driver.next_stream()

    @cached_property
    def copy_stream(self) -> EmulatedStream:
        """The stream that this device reserves for prefetching."""
        return self.Stream()

    def Event(self, *, enable_timing: bool = False) -> EmulatedEvent:
        """Create an event."""
        return EmulatedEvent(self._driver, enable_timing=enable_timing)

    def stream(self, stream: EmulatedStream | None) -> AbstractContextManager[None]:
        """Make `stream` the current one of this thread inside the `with` block."""
        return self._driver.use(stream)

    def current_stream(self) -> EmulatedStream:
        """Return the stream that this thread launches on."""
        return self._driver.stream

    def synchronize(self) -> None:
        """Block the host until all launched operations have finished."""
        for stream in list(self._driver.streams):
            stream.synchronize()

    def upload(self, batch: Any, *, non_blocking: bool = False) -> Any:
        """Copy the tensors of `batch` to the device.

        Copies from pageable memory are slower and block the host even with `non_blocking=True`,
        unless the tensor is `SMALL`. Pinned tensors with gaps are first packed in pageable memory.
        """
        contents: list[Content] = []

        def copy(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            contents.append(self._upload(_dense(leaf)))
            return self._handle(contents[-1])

        with self._driver.lock:
            uploaded = map_leaves(copy, batch)
            staged = [content for content in contents if not _is_fetched(content.data)]
            for content in contents:
                borrowed = non_blocking and content not in staged
                (self._memory.borrow if borrowed else self._memory.take)(content)
        if not contents:
            return uploaded
        start_ns, last = contents[0].written.start_ns, contents[-1].written
        self._record("copy", "transfer", start_ns, last.end_ns, _batch_number())
        if not non_blocking:
            self._driver.wait(last.end_ns, last.known)
        # Staging blocks the host, but the host does not learn when the data have arrived.
        elif large := [c.written.end_ns for c in staged if c.data.nbytes > SMALL]:
            self._driver.clock.sleep_until(large[-1])
        return uploaded

    def _upload(self, source: torch.Tensor) -> Content:
        rate = self.preset.pinned_gb_s if _is_fetched(source) else self.preset.pageable_gb_s
        stream = self.current_stream()
        allocation = self._memory.allocate(source.nbytes, stream)
        copy = stream.launch(self._to_device, round(source.nbytes / rate))
        return Content(source.detach(), allocation, copy, _batch_number())

    def _handle(self, content: Content) -> DeviceTensor:
        """Return a tensor that keeps its memory allocated as long as the tensor exists."""
        tensor = DeviceTensor(content, self)
        weakref.finalize(tensor, self._memory.drop, content.allocation).atexit = False
        return tensor

    def download(self, content: Content) -> torch.Tensor:
        """Return a copy in host memory, made after the current stream's earlier work."""
        duration = round(content.data.nbytes / self.preset.pageable_gb_s)
        copy = self.current_stream().launch(self._to_host, duration)
        result = EmulatedLoss(self._driver, copy, [content])
        self._driver.wait(copy.end_ns, copy.known)
        return poison(content.data) if result.poisoned else content.data.clone()

    def download_ahead(self, content: Content) -> torch.Tensor:
        """Launch a copy to pinned host memory, readable after waiting for a later event.

        Until then it contains garbage. On CUDA the data sometimes arrive earlier.
        """
        with self._driver.lock:
            duration = round(content.data.nbytes / self.preset.pinned_gb_s)
            copy = self.current_stream().launch(self._to_host, duration)
            return self._memory.download(content, copy)

    def step(self, batch: Any, *, ms: float | None = None, occupancy: float = 1.0) -> EmulatedLoss:
        """Launch a training step that reads `batch`; immediately return its loss."""
        with self._driver.lock:
            contents = self._contents(batch)
            kernel = self._launch(contents, self.step_ms if ms is None else ms, occupancy)
            loss = EmulatedLoss(self._driver, kernel, contents)
            self._unread.append(weakref.ref(loss))
            oldest = self._unread.popleft()() if len(self._unread) > UNREAD_LOSSES else None
        if oldest:
            oldest.compute()
        return loss

    def launch(self, function: Callable[..., Any], *buffers: Any, ms: float) -> Any:
        """Launch a kernel of `ms` and return `function(*buffers)` as new device tensors.

        The function receives ordinary tensors and must not modify them. It runs immediately, and
        its CPU time does not count as time of the device.
        """
        with self._driver.lock:
            contents = self._contents(buffers)
            kernel = self._launch(contents, ms)
            result = function(*map_leaves(_value, buffers))
            return map_tensors(lambda tensor: self._keep(tensor, kernel, contents), result)

    def _launch(self, contents: list[Content], ms: float, occupancy: float = 1.0) -> Operation:
        if ms < 0 or not 0 < occupancy <= 1:
            raise ValueError(f"{ms=} must be at least 0 and {occupancy=} must be in (0, 1].")
        kernel = self.current_stream().launch(self._compute, round(ms * 1e6))
        batch = contents[0].batch if contents else _batch_number()
        self._record("gpu", "compute", kernel.start_ns, kernel.end_ns, batch)
        self._kernels.append(Kernel(kernel.start_ns, kernel.end_ns, occupancy))
        return kernel

    def _keep(
        self, result: torch.Tensor, kernel: Operation, sources: list[Content]
    ) -> DeviceTensor:
        allocation = self._memory.allocate(result.nbytes, self.current_stream())
        batch = sources[0].batch if sources else _batch_number()
        content = Content(result, allocation, kernel, batch)
        for source in sources:
            source.read(kernel, content)
        self._memory.take(content)
        return self._handle(content)

    def _contents(self, batch: Any) -> list[Content]:
        if tensors(batch):
            raise ValueError(IN_HOST_MEMORY)
        uploaded = [leaf for leaf in leaves(batch) if isinstance(leaf, DeviceTensor)]
        for tensor in uploaded:
            if tensor.gpu is not self:
                raise RuntimeError(ON_ANOTHER_GPU.format(tensor.gpu.name, self.name))
        return [tensor.content for tensor in uploaded]

    def pin(self, batch: Any) -> Any:
        """Copy the tensors of `batch` to pinned memory. This takes time on the host."""
        with stage("transfer", lane="main"):
            start = self._driver.clock()
            copied = map_tensors(lambda tensor: _dense(tensor).clone(), batch)
            nbytes = sum(tensor.nbytes for tensor in tensors(batch))
            self._driver.clock.sleep_until(start + round(nbytes / self.preset.pageable_gb_s))
        return map_tensors(mark_pinned, copied)

    def pinned(self, batches: Iterable[Any]) -> PinnedBatches:
        """Return `batches` in pinned memory, as `DataLoader(pin_memory=True)` does on CUDA.

        A thread pins while your loop runs, so this takes no time. (Without CUDA nothing is really
        pinned.) As in a DataLoader, a dataclass without a `pin_memory` method stays unpinned.
        """
        return PinnedBatches(batches, partial(pin_as_a_loader, lambda t: mark_pinned(_dense(t))))

    def is_pinned(self, batch: Any) -> bool:
        """Return whether all tensors of `batch` are in pinned memory, real or emulated."""
        return all(is_pinned(part) for tensor in tensors(batch) for part in dense_parts(tensor))

    def memory_allocated(self) -> int:
        """Return the bytes of device memory in use."""
        with self._driver.lock:
            self._memory.collect()
            return self._memory.used

    def max_memory_allocated(self) -> int:
        """Return the peak number of bytes in use."""
        return self._memory.peak

    def memory_reserved(self) -> int:
        """Return the bytes reserved on the device, including freed ones kept for reuse."""
        return self._memory.reserved

    def smi(self) -> Smi:
        """Return the output that nvidia-smi would give now."""
        now, taken = self._driver.clock(), self.memory_reserved()
        return emulated_smi(self.preset, list(self._kernels), now_ns=now, memory_used=taken)

    def _record(self, lane: str, name: str, start_ns: int, end_ns: int, batch: int) -> None:
        trace = current()
        if trace is not None:
            trace.mention(self.name)
            trace.add(Span(lane, name, start_ns, end_ns, batch))


class DeviceTensor(Handle):
    """A tensor on the emulated device, for `gpu.step`, `gpu.launch` and `cpu()`."""

    is_cuda = True
    as_torch = False  # whether torch's own names act on emulated devices now

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """`torch.Tensor` for learners in `emulated_cuda`, because isinstance is True on CUDA."""
        asker = str(sys._getframe(1).f_globals.get("__name__")).partition(".")[0]
        is_ours = asker in ("course_utils", "keepfed")
        return type(self) if is_ours or not self.as_torch else torch.Tensor

    def __init__(self, content: Content, gpu: EmulatedAccelerator):
        self.content, self.gpu = content, gpu
        self.device = torch.device("cuda", gpu.index)
        self.shape, self.dtype = content.data.shape, content.data.dtype

    def record_stream(self, stream: EmulatedStream) -> None:
        """Keep the memory of this tensor until `stream` has finished its current work.

        For the stream that the tensor was allocated on, this does nothing, as on CUDA.

        Raises:
            TypeError: If `stream` is something else, such as the accelerator.
        """
        if not isinstance(stream, EmulatedStream):
            kind = type(stream).__name__
            raise TypeError(f"A {kind} is not a stream. Pass torch.cuda.current_stream().")
        allocation = self.content.allocation
        if stream is not allocation.home:
            allocation.recorded.append(stream)

    def cpu(self) -> torch.Tensor:
        """Return a copy in host memory, made after the current stream's earlier work."""
        return self.gpu.download(self.content)

    def to(self, device: Any, *, non_blocking: bool = False) -> Any:
        """Return a copy in host memory: `cpu()`, or an asynchronous copy.

        With `non_blocking=True` the tensor contains garbage until the host has waited for an event
        that was recorded after the copy, or for the stream.
        """
        if str(device) in ("cuda", str(self.device)):
            return self
        if str(device) != "cpu":
            raise ValueError(
                f"A tensor on the {self.gpu.name} can only be copied to the host, not to "
                f'{device!r}. Use tensor.to("cpu").'
            )
        return self.gpu.download_ahead(self.content) if non_blocking else self.cpu()

    def numel(self) -> int:
        """Return the number of elements."""
        return self.shape.numel()

    def size(self, dim: int) -> int:
        """Return the length along one dimension."""
        return self.shape[dim]

    def __len__(self) -> int:
        return self.shape[0]

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"An emulated device tensor has no attribute {name!r}. {COMPUTE}")

    @classmethod
    def __torch_function__(cls, function: Any, *_: Any) -> NoReturn:
        raise TypeError(f"{function.__name__}() does not run on the emulated GPU. {COMPUTE}")

    def _operate(self, *_: Any) -> NoReturn:
        raise TypeError(f"Operators do not run on the emulated GPU. {COMPUTE}")

    __add__ = __sub__ = __mul__ = __truediv__ = __matmul__ = __getitem__ = _operate

    def __repr__(self) -> str:
        # Without the values, because they may not have arrived yet.
        return f"DeviceTensor({tuple(self.shape)}, {self.dtype}, {self.gpu.name!r})"


class EmulatedLoss(Loss):
    """The result of a step: a checksum of the data it read, or NaN if it read garbage."""

    def __init__(self, driver: Driver, kernel: Operation, contents: list[Content]):
        self.poisoned = False
        self._driver, self._kernel, self._contents = driver, kernel, contents
        self._value: float | None = None
        for content in contents:
            content.read(kernel, self)

    def item(self) -> float:
        """Block the host until the kernel has finished, and return the checksum."""
        self._driver.learn(self._kernel.known)
        self.compute()  # before the wait, so that the wait hides its cost
        self._driver.clock.sleep_until(self._kernel.end_ns)
        return float("nan") if self.poisoned or self._value is None else self._value

    def compute(self) -> None:
        """Compute the checksum, once."""
        if self._value is None:
            self.poisoned |= any(content.poisoned for content in self._contents)
            self._value = checksum([content.data for content in self._contents]).item()
            self._contents = []


def _is_fetched(source: torch.Tensor) -> bool:
    """Return whether the copy engine can read `source` directly: pinned, and without gaps."""
    return is_pinned(source) and not has_gaps(source)


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.layout != torch.strided or tensor.is_nested:
        raise TypeError(
            "The emulated device copies only dense tensors, but the batch contains a tensor with "
            f"layout {tensor.layout}. Return its indices and values as dense tensors."
        )
    return tensor


def _value(leaf: Any) -> Any:
    return leaf.content.data if isinstance(leaf, DeviceTensor) else leaf


def _batch_number() -> int:
    trace = current()
    return -1 if trace is None else trace.batch


def emulated_smi(
    preset: Preset, kernels: Sequence[Kernel], *, now_ns: int, memory_used: int
) -> Smi:
    """Return the output of nvidia-smi at `now_ns` for a GPU that ran `kernels`, in order.

    The power is a guess: idle without a kernel, otherwise linear from awake to full load.
    """
    begin = now_ns - SAMPLE_NS
    recent = [(_overlap(kernel, begin, now_ns), kernel.occupancy) for kernel in kernels]
    sm_active = sum(lasted * occupancy for lasted, occupancy in recent) / SAMPLE_NS
    at_work = preset.awake_w + (preset.max_w - preset.awake_w) * sm_active
    return Smi(
        name=f"emulated {preset.name}",
        perf=preset.perf.split()[bool(sm_active)],
        gpu_util=round(100 * sum(lasted for lasted, _ in recent) / SAMPLE_NS),
        power_w=at_work if sm_active else preset.idle_w,
        max_power_w=preset.max_w,
        memory_used=memory_used,
        memory_total=round(preset.memory_gib * 2**30),
        idle=_idle(kernels, now_ns),
        sm_active=sm_active,
    )


def _overlap(kernel: Kernel, begin: int, end: int) -> int:
    return max(min(kernel.end_ns, end) - max(kernel.start_ns, begin), 0)


def _idle(kernels: Sequence[Kernel], now_ns: int) -> float | None:
    if not kernels or now_ns <= kernels[0].start_ns:
        return None
    begin = kernels[0].start_ns
    busy = sum(_overlap(kernel, begin, now_ns) for kernel in kernels)
    return 1 - busy / (now_ns - begin)
