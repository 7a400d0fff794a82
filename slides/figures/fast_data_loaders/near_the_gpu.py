"""Figures of caches, copies over the bus, and streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from keepfed.measure.picture import LOOKS
from keepfed.measure.spans import Span
from keepfed.palette import BAD, MEASURED
from slides.figures.fast_data_loaders.drawing import slide
from slides.figures.fast_data_loaders.waiting import hit_percent


def cache_policies() -> Figure:
    """Draw the hit share of a cache that evicts the oldest block and of one that never evicts."""
    sizes = [0.5, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0]
    evicts = [hit_percent(size, in_order=True) for size in sizes]
    keeps = [100 * min(1.0, 1 / size) for size in sizes]
    with slide(5.9, 5.2) as (figure, (panel,)):
        panel.plot(sizes, keeps, "s-", color=MEASURED, markersize=10)
        panel.plot(sizes, evicts, "o--", color=BAD, markersize=10)
        panel.text(1.6, 70, "never evicts")
        panel.text(1.3, 8, "evicts the oldest")
        panel.set(xlabel="data / cache", ylabel="found in the cache (%)", ylim=(-5, 105))
    return figure


def copies() -> Figure:
    """Draw when the program continues and when the batch arrives, for four kinds of copies."""
    import torch

    images = torch.zeros(160, 3, 224, 224, dtype=torch.uint8)
    kinds = {
        "pageable": {"pinned": False, "non_blocking": False},
        "pageable, non_blocking": {"pinned": False, "non_blocking": True},
        "pinned": {"pinned": True, "non_blocking": False},
        "pinned, non_blocking": {"pinned": True, "non_blocking": True},
    }
    times = {name: _copy_ms(images, **kind) for name, kind in kinds.items()}
    held, there = zip(*times.values(), strict=True)
    with slide(12.4, 4.4) as (figure, (panel,)):
        whole = panel.barh(list(times), there, color="none", hatch="//", label="batch has arrived")
        for bar in whole:
            bar.set(edgecolor=MEASURED, linewidth=2)
        panel.barh(list(times), held, color=BAD, height=0.4, label="program continues")
        panel.set(xlabel="ms until … (emulated RTX 3090, 24 MB)", xlim=(0, 3.4))
        panel.invert_yaxis()
        panel.legend(loc="lower right")
    return figure


def _copy_ms(batch: Any, *, pinned: bool = True, non_blocking: bool = True) -> tuple[float, float]:
    """Return the ms until the program continues and until the batch has arrived."""
    from course_utils.hardware.gpu import timed_accelerator

    gpu, clock = timed_accelerator("RTX 3090", emulate=True)
    source = gpu.pin(batch) if pinned else batch
    gpu.upload(source)  # also allocates its memory
    gpu.synchronize()
    start = clock()
    gpu.upload(source, non_blocking=non_blocking)
    goes_on = clock()
    gpu.synchronize()
    return (goes_on - start) / 1e6, (clock() - start) / 1e6


def race() -> Figure:
    """Draw copies and steps of three designs, and mark the steps that read garbage."""
    designs = {
        "one queue": _default_stream,
        "two, and\nno wait": _side_stream(wait=False),
        "two, and\nan event": _side_stream(wait=True),
    }
    with slide(12.4, 5.3, rows=3, sharex=True) as (figure, panels):
        for panel, (name, design) in zip(panels, designs.items(), strict=True):
            spans, right = _train(design)
            for span in spans:
                _draw_span(panel, span, wrong=span.lane == "gpu" and not right[span.batch])
            panel.set(yticks=(0, 1), yticklabels=("steps", "copies"), ylim=(-0.5, 1.5))
            panel.set_ylabel(name, rotation=0, ha="right", va="center", labelpad=10)
            panel.set(xticks=[])
            panel.spines[:].set_visible(False)
        panels[-1].set_xlabel("time → (emulated, crossed: computed with garbage)")
    return figure


def _default_stream(gpu: Any, batches: Sequence[Any]) -> Iterator[Any]:
    before = None
    for batch in batches:
        ready = gpu.upload(batch, non_blocking=True)
        if before is not None:
            yield before
        before = ready
    yield before


def _side_stream(*, wait: bool) -> Callable[[Any, Sequence[Any]], Iterator[Any]]:
    from course_utils.stories.prefetchers import SideStream

    return lambda gpu, batches: iter(SideStream(batches, gpu, wait=wait))


def _train(design: Callable[[Any, Sequence[Any]], Iterator[Any]]) -> tuple[list[Span], list[bool]]:
    """Return the spans of six steps on an emulated GPU, and whether each read its batch."""
    import torch

    from course_utils.hardware.gpu import checksum, timed_accelerator
    from keepfed.measure.trace import record

    gpu, clock = timed_accelerator("RTX 3090", step_ms=0.3, emulate=True)
    rows = torch.arange(6, dtype=torch.float32)[:, None] + 1
    batches = list(gpu.pinned(row.expand(1_200_000).clone() for row in rows))
    with record(clock=clock) as trace:
        found = [gpu.step(batch).item() for batch in design(gpu, batches)]
    wanted = [checksum([batch]).item() for batch in batches]
    shown = [span for span in trace.spans if span.lane in ("copy", "gpu")]
    return shown, [a == b for a, b in zip(found, wanted, strict=True)]


def _draw_span(panel: Axes, span: Span, *, wrong: bool) -> None:
    look = LOOKS[span.stage]
    height, row = 0.8, 0 if span.lane == "gpu" else 1
    bar = panel.barh(row, span.duration_ns / 1e6, height, left=span.start_ns / 1e6)[0]
    bar.set(
        facecolor=look.color, edgecolor="black" if wrong else look.edge(dark=False), linewidth=2
    )
    bar.set_hatch("xx" if wrong else "")
