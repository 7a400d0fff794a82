"""Programs that were never tried on CUDA: `python gpu_wild.py NAME` prints one line.

Without a GPU, or with --emulated, they run on the CPU or on an emulated device, so that they are
known to start. Those that need CUDA itself say so.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.data import DataLoader

REPO = Path(__file__).resolve().parents[2]
AT_ONCE = 3  # few, as some of these programs measure time
CUDA = torch.cuda.is_available() and "--emulated" not in sys.argv
DEVICE = torch.device("cuda" if CUDA else "cpu")


def jagged() -> str:
    """Train the capstone's transformer on padded batches and on jagged ones, with equal losses."""
    from course_utils.loading.events import MemmapEvents, read_sensors
    from course_utils.stories.capstone import jagged as story
    from course_utils.teaching.notebook import data_path
    from keepfed.loaders.prefetch import CudaPrefetcher
    from keepfed.loaders.ragged import Ragged, RaggedCollate

    def attend(attention: nn.MultiheadAttention, states: Tensor, batch: Ragged) -> Tensor:
        mixed = F.linear(states, attention.in_proj_weight, attention.in_proj_bias)
        mixed = mixed.view(len(states), 3, attention.num_heads, attention.head_dim)
        parts = [batch.nested(part.contiguous()).transpose(1, 2) for part in mixed.unbind(1)]
        with nullcontext() if CUDA else sdpa_kernel(SDPBackend.MATH):  # the choice asks CUDA
            attended = F.scaled_dot_product_attention(*parts).transpose(1, 2)
        return attention.out_proj(attended.values().flatten(1))

    story.attend = attend
    folder = data_path("events", "S")
    events, losses, took = MemmapEvents(folder), {}, {}
    samples = [story.as_tokens(sample) for sample in events.__getitems__([*range(160)])]
    join: Any = RaggedCollate("features", "sensor")
    for kind, collate in (story.PulseTransformer, story.pad), (story.RaggedTransformer, join):
        torch.manual_seed(0)
        model = kind(read_sensors(folder)).to(DEVICE)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        loader: DataLoader[Any] = DataLoader(samples, 16, collate_fn=collate, pin_memory=CUDA)
        losses[kind], ends = [], []
        for batch in CudaPrefetcher(loader, DEVICE):
            loss = model.direction_loss(batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[kind].append(loss.item())
            ends.append(time.perf_counter())
        took[kind] = 1e3 * median(b - a for a, b in pairwise(ends))
    padded, ragged = losses.values()
    apart = max(abs(a - b) for a, b in zip(padded, ragged, strict=True))
    assert apart < 1e-3, (padded, ragged)
    return "{:.1f} ms a step padded, {:.1f} jagged, ".format(*took.values()) + (
        f"losses at most {apart:.0e} apart"
    )


def image_loader() -> str:
    """Serve an ImageLoader, which reuses its memory, with CudaPrefetcher, and check all batches."""
    from gpu_checks import expected, hidden

    from course_utils.hardware.gpu import get_accelerator
    from course_utils.teaching.notebook import data_path
    from keepfed.loaders.images import ImageLoader, pack_images
    from keepfed.loaders.prefetch import CudaPrefetcher
    from keepfed.measure.trace import record

    gpu = get_accelerator("H200", step_ms=100, emulate=not CUDA)
    with TemporaryDirectory() as folder:
        packed = Path(folder) / "train.images"
        pack_images(packed, data_path("images", "S"))
        wanted = [expected(batch) for batch in ImageLoader(packed, 32, 192, seed=1)]
        with record() as trace:
            batches = CudaPrefetcher(ImageLoader(packed, 32, 192, seed=1), gpu)
            losses = [gpu.step(batch) for batch in batches]  # read later, so that steps queue up
            gpu.synchronize()
    right = sum(loss.item() == other for loss, other in zip(losses, wanted, strict=True))
    assert right == len(wanted), f"{right} of {len(wanted)} batches right"
    return f"{hidden(trace.spans):.0%} of the copies hidden, {right} of {right} batches right"


def photographs() -> tuple[DataLoader[Any], Callable[[Any], None]]:
    """Return a loader of JPEGs, which is slower than the model, and a training step."""
    from torchvision.models import resnet18
    from torchvision.transforms.v2 import RandomResizedCrop

    from course_utils.teaching.notebook import data_path
    from keepfed.loaders.images import Jpegs

    data = Jpegs(data_path("images", "S"), RandomResizedCrop(128))
    loader: DataLoader[Any] = DataLoader(
        data, 32, num_workers=4 if CUDA else 1, pin_memory=CUDA, persistent_workers=True
    )
    model = (resnet18() if CUDA else nn.Conv2d(3, 16, 3)).to(DEVICE)

    def train(batch: Any) -> None:
        images = batch[0].to(DEVICE, torch.float32, non_blocking=True)
        model(images).mean().backward()

    train(next(iter(loader)))  # starts the workers, and cuDNN selects algorithms
    return loader, train


def record_any_loop() -> str:
    """Record a training by events around `next()`, which is a bound, and by its kernels."""
    from keepfed.measure.trace import record

    (loader, train), busy = photographs(), {}
    for way in ("events", "kernels")[: 1 + CUDA]:
        with record(kernels=way == "kernels") as trace:
            for batch in trace.batches(loader):
                train(batch)
        busy[way] = trace.summary().utilization
    assert busy.get("kernels", 0) < busy["events"] + 0.03, busy
    return "busy by " + ", ".join(f"{way} {share:.0%}" for way, share in busy.items())


def loader_is_the_limit() -> str:
    """Time a training whose loader is the limit, with pinned memory and with a prefetcher too."""
    from keepfed.loaders.prefetch import CudaPrefetcher

    loader, train = photographs()

    def seconds(batches: Iterable[Any]) -> float:
        start = time.perf_counter()
        for batch in batches:
            train(batch)
        if CUDA:
            torch.cuda.synchronize()
        return time.perf_counter() - start

    prefetcher = CudaPrefetcher(loader, DEVICE)
    ratio = median(seconds(loader) / seconds(prefetcher) for _ in range(5))
    return f"with a prefetcher {ratio:.2f} times as fast"


TRAINING = """
import os, sys, torch
from torch.utils.data import DataLoader, TensorDataset

def main():
    words = sys.argv[1:]
    device = "cuda" if "cuda" in words else "cpu"
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
    model.to(device)
    if "ranks" in words:
        torch.distributed.init_process_group("nccl" if device == "cuda" else "gloo")
        model = torch.nn.parallel.DistributedDataParallel(model)
    if "compile" in words:
        model = torch.compile(model, mode="reduce-overhead")  # with CUDA graphs
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    pin = {"pin_memory": True} if device == "cuda" else {}
    if "pin_memory_device" in words:
        pin["pin_memory_device"] = device
    data = TensorDataset(torch.randn(4096, 64), torch.randn(4096, 1))
    loader = DataLoader(data, 64, shuffle=True, num_workers=2, persistent_workers=True, **pin)
    for epoch in range(3):
        for inputs, labels in loader:
            inputs, labels = (part.to(device, non_blocking=True) for part in (inputs, labels))
            loss = torch.nn.functional.mse_loss(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)
    if "ranks" in words:
        torch.distributed.destroy_process_group()

if __name__ == "__main__":
    main()
"""


def beside(command: str, *words: str, launcher: Sequence[str] = (sys.executable,)) -> str:
    """Run a training alone and under keepfed, compare losses, and return lines of the report."""
    outputs = []
    with TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text(TRAINING, "utf-8")
        training = [*launcher, str(script), DEVICE.type, *words]
        for before in ((), (sys.executable, "-m", "keepfed.command", command)):
            run = subprocess.run([*before, *training], cwd=folder, capture_output=True, text=True)
            assert run.returncode == 0, run.stdout + run.stderr
            outputs.append(run.stdout + run.stderr)
    alone, watched = (re.findall(r"epoch \d.*", output) for output in outputs)
    assert alone == watched != [], (alone, watched)
    lines = re.findall(r"(?:.*batches in|.*device idle|Checked).*", outputs[1])
    return f"same losses; {' '.join(' '.join(lines).split())}"


def watch_torchrun() -> str:
    """Watch a training that torchrun starts."""
    torchrun = str(Path(sys.executable).with_name("torchrun"))
    return beside("watch", "ranks", launcher=(torchrun, "--standalone", "--nproc-per-node", "1"))


def pin_memory_device() -> str:
    """Watch a loader that pins for a named device."""
    if not CUDA:
        raise ModuleNotFoundError("needs CUDA")
    return beside("watch", "pin_memory_device")


EPOCHS = (
    f"""
import psutil, torch
from torch.utils.data import DataLoader, TensorDataset
from keepfed import CudaPrefetcher
data = TensorDataset(torch.randn(256, 40_000))
loader = DataLoader(data, 64, num_workers=2, pin_memory={CUDA})
""",
    f"""
for (batch,) in CudaPrefetcher(loader, "{DEVICE}"):
    loss = batch.mean()
print(psutil.Process().memory_info().rss >> 20, torch.cuda.memory_reserved() >> 20)
""",
)


def memory_in_a_notebook() -> str:
    """Run 40 epochs as cells of a notebook, which take no more memory than five."""
    from tests.notebooks.kernel import running_kernel

    with TemporaryDirectory() as folder, running_kernel(Path(folder)) as kernel:
        kernel.run(EPOCHS[0])
        texts = [kernel.run(EPOCHS[1]) for _ in range(40)]
    host, device = zip(*(map(int, text.split()) for text in texts), strict=True)
    assert host[39] < host[4] + 100, host
    assert device[39] == device[4], device
    return (
        f"MB of host and device: {host[4]}, {device[4]} in epoch 5, {host[39]}, {device[39]} in 40"
    )


WILD: dict[str, Callable[[], str]] = {
    "watch_compile": lambda: beside("watch", "compile"),
    "watch_torchrun": watch_torchrun,
    "pin_memory_device": pin_memory_device,
    "audit_pinned": lambda: beside("audit"),
    "record_any_loop": record_any_loop,
    "jagged": jagged,
    "image_loader": image_loader,
    "memory_in_a_notebook": memory_in_a_notebook,
    "loader_is_the_limit": loader_is_the_limit,
}

if __name__ == "__main__":
    sys.path[:0] = [str(REPO), str(REPO / "keepfed/src")]
    print(WILD[sys.argv[1]]())
