"""Answers to the exercises of notebook 08: right in another way, and wrong in typical ways."""

import torch
from torch import Tensor

from notebooks.exercises.nb08.ex1_split import MEAN, STD
from notebooks.exercises.nb08.ex3_where_to_augment import decide, on_cpu, on_gpu
from notebooks.exercises.nb08.problem import Job

# 08.1: in_worker(image, top, left) and on_device(images, flips)


def cut(image: Tensor, top: int, left: int) -> Tensor:
    return image[:, top : top + 224, left : left + 224]


def cut_and_copy(image: Tensor, top: int, left: int) -> Tensor:
    return cut(image, top, left).contiguous()


def cut_to_float(image: Tensor, top: int, left: int) -> Tensor:
    return cut(image, top, left) / 255


def cut_and_normalise(image: Tensor, top: int, left: int) -> Tensor:
    return (cut(image, top, left) / 255 - MEAN) / STD


def whole_frame(image: Tensor, top: int, left: int) -> Tensor:
    return image


def float_and_back(image: Tensor, top: int, left: int) -> Tensor:
    return (cut(image, top, left) / 255).mul(255).round().to(torch.uint8)


def columns_first(image: Tensor, top: int, left: int) -> Tensor:
    return cut(image, left, top)


def corner_of_all(image: Tensor, top: int, left: int) -> Tensor:
    return image[:, :224, :224]


def smaller(image: Tensor, top: int, left: int) -> Tensor:
    return image[:, top : top + 192, left : left + 192]


def in_place(image: Tensor, top: int, left: int) -> Tensor:
    return image.add_(1)[:, top : top + 224, left : left + 224]


def to_numpy(image: Tensor, top: int, left: int) -> object:
    return cut(image, top, left).numpy()


def finish(images: Tensor, flips: Tensor) -> Tensor:
    images = no_flip(images, flips)
    return torch.where(flips.view(-1, 1, 1, 1), images.flip(-1), images)


def finish_by_index(images: Tensor, flips: Tensor) -> Tensor:
    across = torch.arange(224, device=images.device)
    columns = torch.where(flips[:, None], 223 - across, across)
    flipped = images.gather(3, columns[:, None, None, :].expand(-1, 3, 224, -1))
    return no_flip(flipped, flips)


def finish_by_mask(images: Tensor, flips: Tensor) -> Tensor:
    images = no_flip(images, flips)
    images[flips] = images[flips].flip(-1)
    return images


def in_host_memory(images: Tensor, flips: Tensor) -> Tensor:
    images = (images / 255 - MEAN) / STD
    return torch.where(flips.view(-1, 1, 1, 1), images.flip(-1), images)


def finish_in_a_loop(images: Tensor, flips: Tensor) -> Tensor:
    parts = [(image / 255 - MEAN) / STD for image in images]
    return torch.stack([p.flip(-1) if f else p for p, f in zip(parts, flips, strict=True)])


def no_flip(images: Tensor, flips: Tensor) -> Tensor:
    return (images / 255 - MEAN.to(images.device)) / STD.to(images.device)


def flip_all(images: Tensor, flips: Tensor) -> Tensor:
    return no_flip(images, flips).flip(-1)


def flip_others(images: Tensor, flips: Tensor) -> Tensor:
    return finish(images, ~flips)


def upside_down(images: Tensor, flips: Tensor) -> Tensor:
    images = no_flip(images, flips)
    return torch.where(flips.view(-1, 1, 1, 1), images.flip(-2), images)


def not_scaled(images: Tensor, flips: Tensor) -> Tensor:
    return finish(images.float() * 255, flips)


def not_normalised(images: Tensor, flips: Tensor) -> Tensor:
    return torch.where(flips.view(-1, 1, 1, 1), images.flip(-1), images) / 255


def not_divided(images: Tensor, flips: Tensor) -> Tensor:
    return not_normalised(images, flips) - MEAN


def half(images: Tensor, flips: Tensor) -> Tensor:
    return finish(images, flips).half()


def first_only(images: Tensor, flips: Tensor) -> Tensor:
    return finish(images, flips)[0]


# 08.2: random_crops(images, size, generator)


def _offsets(images: Tensor, size: int, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    batch, _, height, width = images.shape
    top = torch.randint(height - size + 1, (batch,), generator=generator)
    return top, torch.randint(width - size + 1, (batch,), generator=generator)


def _gather(images: Tensor, top: Tensor, left: Tensor, size: int) -> Tensor:
    window = torch.arange(size)
    rows = (top[:, None] + window)[:, None, :, None]
    columns = (left[:, None] + window)[:, None, None, :]
    samples = torch.arange(len(images)).view(-1, 1, 1, 1)
    return images[samples, torch.arange(images.shape[1]).view(-1, 1, 1), rows, columns]


def by_index(images: Tensor, size: int, generator: torch.Generator) -> Tensor:
    return _gather(images, *_offsets(images, size, generator), size)


def by_unfold(images: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """Right too: all windows as a view, of which one is chosen for each sample."""
    top, left = _offsets(images, size, generator)
    windows = images.unfold(2, size, 1).unfold(3, size, 1)
    return windows[torch.arange(len(images)), :, top, left]


def in_a_loop(images: Tensor, size: int, generator: torch.Generator) -> Tensor:
    top, left = _offsets(images, size, generator)
    places = zip(images, top.tolist(), left.tolist(), strict=True)
    return torch.stack([image[:, y : y + size, x : x + size] for image, y, x in places])


def one_for_all(images: Tensor, size: int, generator: torch.Generator) -> Tensor:
    top, left = _offsets(images[:1], size, generator)
    return images[:, :, int(top) : int(top) + size, int(left) : int(left) + size]


def one_row_for_all(images: Tensor, size: int, generator: torch.Generator) -> Tensor:
    top, left = _offsets(images, size, generator)
    return _gather(images, top[:1].expand(len(images)), left, size)


def on_the_diagonal(images: Tensor, size: int, generator: torch.Generator) -> Tensor:
    top, _ = _offsets(images, size, generator)
    return _gather(images, top, top.clamp(max=images.shape[3] - size), size)


def one_too_far(images: Tensor, size: int, generator: torch.Generator) -> Tensor:
    batch, _, height, _ = images.shape
    top = torch.randint(height - size + 2, (batch,), generator=generator)
    return _gather(images, top, torch.zeros_like(top), size)


def one_too_few(images: Tensor, size: int, generator: torch.Generator) -> Tensor:
    batch, _, height, width = images.shape
    top = torch.randint(height - size, (batch,), generator=generator)
    left = torch.randint(width - size, (batch,), generator=generator)
    return _gather(images, top, left, size)


def wrong_axis(images: Tensor, size: int, generator: torch.Generator) -> Tensor:
    top, left = _offsets(images, size, generator)
    return _gather(images, left, top, size)


def transposed(images: Tensor, size: int, generator: torch.Generator) -> Tensor:
    return by_index(images, size, generator).mT


def scattered(images: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """An offset for each row instead of one for each sample."""
    batch, channels, _, width = images.shape
    top, _ = _offsets(images, size, generator)
    left = torch.randint(width - size + 1, (batch, size), generator=generator)
    columns = (left[..., None] + torch.arange(size))[:, None].expand(-1, channels, -1, -1)
    rows = (top[:, None] + torch.arange(size))[:, None, :, None]
    samples = torch.arange(batch).view(-1, 1, 1, 1)
    return images[samples, torch.arange(channels).view(-1, 1, 1), rows, columns]


def shuffled(images: Tensor, size: int, generator: torch.Generator) -> Tensor:
    return by_index(images.roll(1, 0), size, generator)


def to_float(images: Tensor, size: int, generator: torch.Generator) -> Tensor:
    return by_index(images, size, generator) / 255


def without_the_generator(images: Tensor, size: int, generator: torch.Generator) -> Tensor:
    return _gather(images, *_offsets(images, size, None), size)


def seeded_in_it(images: Tensor, size: int, generator: torch.Generator) -> Tensor:
    return by_index(images, size, torch.Generator().manual_seed(0))


def overwrites(images: Tensor, size: int, generator: torch.Generator) -> Tensor:
    crops = by_index(images, size, generator)
    images.zero_()
    return crops


def a_list(images: Tensor, size: int, generator: torch.Generator) -> list[Tensor]:
    return list(in_a_loop(images, size, generator))


# 08.3: where_to_augment(job)


def always_gpu(job: Job) -> tuple[str, float]:
    return "GPU", on_gpu(job)


def always_cpu(job: Job) -> tuple[str, float]:
    return "CPU", on_cpu(job)


def _best(job: Job, cpu: float, gpu: float) -> tuple[str, float]:
    fits = job.augment_mb <= job.free_mb
    return ("GPU", gpu) if fits and gpu < cpu else ("CPU", cpu)


def forgets_memory(job: Job) -> tuple[str, float]:
    cpu, gpu = on_cpu(job), on_gpu(job)
    return ("GPU", gpu) if gpu < cpu else ("CPU", cpu)


def free_on_the_gpu(job: Job) -> tuple[str, float]:
    return _best(job, on_cpu(job), max(job.step_ms, job.load_ms / job.cores))


def at_the_same_time(job: Job) -> tuple[str, float]:
    both = max(job.step_ms, job.augment_gpu_ms, job.load_ms / job.cores)
    return _best(job, on_cpu(job), both)


def no_decoding(job: Job) -> tuple[str, float]:
    return _best(job, on_cpu(job), job.step_ms + job.augment_gpu_ms)


def adds_all(job: Job) -> tuple[str, float]:
    load = job.load_ms / job.cores
    cpu = job.step_ms + load + job.augment_cpu_ms / job.cores
    return _best(job, cpu, job.step_ms + job.augment_gpu_ms + load)


def one_core(job: Job) -> tuple[str, float]:
    cpu = max(job.step_ms, job.load_ms + job.augment_cpu_ms)
    return _best(job, cpu, max(job.step_ms + job.augment_gpu_ms, job.load_ms))


def augments_only(job: Job) -> tuple[str, float]:
    return _best(job, max(job.step_ms, job.augment_cpu_ms / job.cores), on_gpu(job))


def the_other_time(job: Job) -> tuple[str, float]:
    place, _ = decide(job)
    return place, on_gpu(job) if place == "CPU" else on_cpu(job)


def halves(job: Job) -> tuple[str, float]:
    place, ms = decide(job)
    return place, ms / 2


def only_the_time(job: Job) -> float:
    return decide(job)[1]


def another_name(job: Job) -> tuple[str, float]:
    return "cuda", decide(job)[1]


def time_as_text(job: Job) -> tuple[str, str]:
    return decide(job)[0], f"{decide(job)[1]} ms"
