"""Torch's own text on the emulated GPU is right or refuted, and torch is restored."""

from contextlib import suppress
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from torch.utils.data._utils.pin_memory import pin_memory

from course_utils.hardware.gpu import checksum, emulated_cuda, timed_accelerator
from course_utils.hardware.gpu.memory import is_marked
from keepfed.loaders.prefetch import CudaPrefetcher
from keepfed.measure.spans import hidden_share
from keepfed.measure.trace import record

PREFETCH = """
copies = torch.cuda.Stream()

def copy(batch):
    with torch.cuda.stream(copies):
        batch = [part.to("cuda", non_blocking=True) for part in batch]
        arrived = torch.cuda.Event()
        arrived.record(copies)
    return batch, arrived

def hand_over(batch, arrived):
    user = torch.cuda.current_stream()
    user.wait_event(arrived)
    for part in batch:
        part.record_stream(user)
    return batch

def prefetch(loader):
    ready = None
    for batch in loader:
        ready, before = copy(batch), ready
        if before:
            yield hand_over(*before)
    if ready:
        yield hand_over(*ready)
"""
BATCHES = 8
# what is wrong: (text, its replacement, what the emulated GPU shows)
DEFECTS = {
    "no wait": ("    user.wait_event(arrived)\n", "", "wrong"),
    "no record_stream": ("        part.record_stream(user)\n", "        pass\n", "wrong"),
    "first tensor only": ("batch:\n        part.", "batch[:1]:\n        part.", "wrong"),
    "record_stream of the copies": ("record_stream(user)", "record_stream(copies)", "wrong"),
    "event before the copy": (
        '        batch = [part.to("cuda", non_blocking=True) for part in batch]\n'
        "        arrived = torch.cuda.Event()\n        arrived.record(copies)\n",
        "        arrived = copies.record_event()\n"
        '        batch = [part.to("cuda", non_blocking=True) for part in batch]\n',
        "wrong",
    ),
    "event on the wrong stream": ("arrived.record(copies)", "arrived.record(user_stream)", "wrong"),
    "the wrong stream waits": ("user.wait_event", "copies.wait_event", "wrong"),
    "asks once": ("user.wait_event(arrived)", "arrived.query()", "wrong"),
    "one stream": ("copies = torch.cuda.Stream()", "copies = torch.cuda.current_stream()", "slow"),
    "copies block": ("non_blocking=True", "non_blocking=False", "slow"),
    "waits for all copies": ("user.wait_event(arrived)", "user.wait_stream(copies)", "slow"),
    "waits for the device": ("user.wait_event(arrived)", "torch.cuda.synchronize()", "slow"),
}


def pairs() -> list[list[torch.Tensor]]:
    """Return batches of two tensors, all of them different, and too small for torch's threads."""
    numbers = [torch.full((30_000,), number, dtype=torch.float64) for number in range(BATCHES)]
    return [[part.float(), part] for part in numbers]


def run(text: str, read_late: bool, pin: bool = True) -> tuple[int, float]:
    """Return how many batches the steps read right, and the share of the copying that overlaps."""
    gpu, clock = timed_accelerator("RTX 3090", step_ms=0.05, emulate=True)
    batches = pairs()
    with emulated_cuda(gpu), record(clock=clock) as trace:
        names: dict[str, Any] = {"torch": torch, "user_stream": torch.cuda.current_stream()}
        exec(text, names)
        pinned = [[part.pin_memory() if pin else part for part in batch] for batch in batches]
        losses = []
        for batch in names["prefetch"](trace.batches(pinned)):
            losses.append(gpu.step(batch))
            del batch
            if not read_late:
                losses[-1].item()
        pairs_read = zip(losses, batches, strict=True)
        right = sum(loss.item() == checksum(batch).item() for loss, batch in pairs_read)
    return right, hidden_share(trace.spans)


def test_right_prefetcher_is_right_and_overlaps() -> None:
    for read_late in (False, True):
        right, hidden = run(PREFETCH, read_late)
        assert right == BATCHES
        assert hidden > 0.8


def test_each_defect_of_a_prefetcher_shows() -> None:
    for name, (text, replacement, shows) in DEFECTS.items():
        assert text in PREFETCH, name
        prompt, late = (run(PREFETCH.replace(text, replacement), late) for late in (False, True))
        if shows == "wrong":
            assert min(prompt[0], late[0]) < BATCHES, name
        else:
            assert (prompt[0], late[0], prompt[1]) == (BATCHES, BATCHES, 0), name
    right, hidden = run(PREFETCH, read_late=False, pin=False)
    assert (right, hidden) == (BATCHES, 0)


def test_what_is_not_emulated_is_named() -> None:
    gpu, _ = timed_accelerator("H200", emulate=True)
    with emulated_cuda(gpu):
        batch = torch.ones(2).to("cuda", torch.float64, non_blocking=True)
        assert (batch.dtype, batch.device.type, batch.is_cuda) == (torch.float64, "cuda", True)
        assert torch.is_tensor(batch)
        for call, words in {
            lambda: torch.cuda.CUDAGraph(): "torch.cuda.CUDAGraph",
            lambda: torch.zeros(2, device="cuda"): "tensors that torch creates",
            lambda: torch.nn.Linear(2, 2).to("cuda"): "a model",
            lambda: torch.ones(2).to("cuda:1"): "no cuda:1",
            lambda: torch.cuda.synchronize(1): "no cuda:1",
            lambda: batch * 2: "Operators",
            lambda: torch.exp(batch): r"exp\(\)",
            lambda: batch.float(): "'float'",
        }.items():
            with pytest.raises((AttributeError, RuntimeError, TypeError), match=words):
                call()


def test_torch_is_restored_also_after_an_error() -> None:
    before = torch.cuda, torch.cuda._lazy_init, dict(vars(torch.Tensor))
    gpu, _ = timed_accelerator("H200", emulate=True)
    with pytest.raises(RuntimeError, match="no cuda:7"), emulated_cuda(gpu):
        torch.ones(2).to("cuda:7")
    assert (torch.cuda, torch.cuda._lazy_init, dict(vars(torch.Tensor))) == before
    with pytest.raises(RuntimeError, match=r"NVIDIA|CUDA"):
        torch.zeros(1, device="cuda:7")


def test_torch_itself_works_in_the_block_as_without_cuda() -> None:
    gpu, _ = timed_accelerator("H200", step_ms=2, emulate=True)
    with emulated_cuda(gpu):
        model = torch.nn.Linear(2, 1)
        model(torch.ones(1, 2)).sum().backward()
        torch.manual_seed(1)  # calls torch.cuda.manual_seed_all
        batches = list(DataLoader(torch.arange(8.0), 4))
        with suppress(RuntimeError):  # there is no CUDA, and a loader pins nothing
            assert not is_marked(pin_memory(batches[0]))
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        losses = [gpu.step(batch).item() for batch in CudaPrefetcher(batches, gpu)]
        end.record()
        torch.cuda.synchronize()
        assert start.elapsed_time(end) >= 4
        assert losses == [checksum([b]).item() for b in batches]
