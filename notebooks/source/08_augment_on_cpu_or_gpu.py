# %% [markdown]
# # 08 · Augment on the CPU or on the GPU
#
# **You will do:** let augmentation starve a GPU, move it to the device, and find out when that was a mistake.
#
# **You will learn**
#
# - what augmented copies on disk cost, and what they can never give,
# - which part of the work belongs in a worker, and in which type it crosses the bus,
# - why one set of random numbers for a batch is a bug,
# - to predict from five numbers where augmentation belongs.
#
# **You need:** notebooks 01 and 02. A CPU is enough. **Minutes:** {minutes}.

# %%
import course_utils as cu

cu.ready("08")

# %% [markdown] tags=["instructor"]
# **Instructor: plan.** Offline and online (4), CPU (3), device (4), batch (3), bus and 8.1 (3 + 5), one set and
# 8.2 (2 + 6), slower and 8.3 (4 + 4), who does what (2). Short of time: leave out the batch and 8.3.
#
# **Board.** One row: read, decode, crop, flip, colours, float, normalise, step. Draw the bus as a line that cuts
# it. All that this notebook does is to move the line.

# %% [markdown]
# ## Augment
#
# An augmentation changes a sample at random such that its label stays true: a photograph cropped, flipped, a bit
# brighter; an event turned together with its direction. The model sees something new in every epoch. First
# the original, then what `Augment` makes of it:

# %%
import torch

from course_utils.loading.images import Augment, Jpegs

folder = cu.data_path("images", "S")
photos, augment = Jpegs(folder), Augment(size=224)
cat = photos[30][0].expand(64, -1, -1, -1)  # uint8 (64, 3, 256, 256): the same one 64 times


def draw(images, seed=0):
    return augment.draw(images.shape, generator=torch.Generator().manual_seed(seed))


# %%
import matplotlib.pyplot as plt
from torchvision.transforms.v2.functional import resize
from torchvision.utils import make_grid

plt.style.use("course_utils.plots")  # readable on light and on dark pages


def show(rows):
    """Draw rows of eight pictures, float 0..1, each with its name."""
    figure, _ = plt.subplots(len(rows), figsize=(10, 1.5 * len(rows)), layout="constrained")
    for panel, (name, images) in zip(figure.axes, rows.items(), strict=True):
        panel.imshow(make_grid(images[:8], pad_value=0.5).permute(1, 2, 0).numpy())
        panel.set(title=name, xticks=[], yticks=[], frame_on=False)
    plt.close()  # a last line shows the figure; without this it would be shown twice
    return figure


# %%
seen = augment.visible(cat[:7], draw(cat[:7]))
show({"a photograph, and seven augmentations": torch.cat([resize(cat[:1], [224]) / 255, seen])})

# %% [markdown]
# ## Before the training, or during it?
#
# A lecture offers four places for this:
#
# | Where | Disk | What the model sees | Costs |
# |---|---|---|---|
# | offline: copies on disk | every copy | the same copies, again and again | reading more |
# | online, in the workers | nothing | something new in each epoch | CPU time |
# | online, on the GPU | nothing | something new in each epoch | GPU time |
# | cached after augmenting | memory | one version, for ever | nothing |
#
# Take offline first: ten copies of each photograph on disk, one of them read in each of ninety epochs.

# %%
cu.predict("08a", "Ten copies: how many versions of a photograph has the model seen in 90 epochs?")

# %%
small = Augment(size=32)


def versions(copies=None, epochs=90):
    """Count after each epoch how many different versions of a photograph there were."""
    seen, counts = set(), []
    for epoch in range(epochs):
        seed = epoch if copies is None else epoch % copies
        draws = small.draw(cat[:1].shape, generator=torch.Generator().manual_seed(seed))
        seen.add(small(cat[:1], draws).numpy().tobytes())
        counts.append(len(seen))
    return counts


# %%
counts = {"online": versions(), "offline, 10 copies": versions(10), "cached": versions(1)}
figure, panel = plt.subplots(figsize=(7, 2.6), layout="constrained")
for (name, seen), line in zip(counts.items(), ("-", "--", ":"), strict=True):
    panel.plot(range(1, 91), seen, line, label=name)
panel.set(xlabel="epochs", ylabel="different versions")
panel.legend()
plt.close()
figure

# %%
cu.reveal("08a", counts["offline, 10 copies"][-1])

# %% [markdown]
# Offline costs ten times the disk, and diversity ends after ten epochs. It pays for what is slow and not random: resize
# once, to 256 pixels, and store that. Random belongs in the loop. But who does it there?
#
# ## In the workers
#
# What does a batch of 16 photographs cost one core? <!-- given -->

# %%
from timeit import repeat

from course_utils.loading.images import per_sample

augmented = Jpegs(folder, per_sample(augment))  # the same, made of torchvision's transforms


def best_ms(work, times=5):
    return 1e3 * min(repeat(work, number=1, repeat=times))


def batch_ms(dataset):
    return best_ms(lambda: [dataset[index] for index in range(0, 160, 10)])


decode_ms, both_ms = batch_ms(photos), batch_ms(augmented)
print(
    f"read, decode: {decode_ms:.1f} ms, and augmented: {both_ms:.1f} ms, {both_ms / decode_ms:.1f} x"
)

# %% [markdown]
# Crop, flip, brightness, contrast, float and normalise cost more than the JPEG does. We give the GPU a step of 0.4 times
# what one core needs for such a batch. Two workers deliver one every 0.5 times that: a little too slow. <!-- given -->

# %%
cu.predict(
    "08b", "Two workers decode and augment. What share of the time is the GPU idle?", unit="%"
)

# %%
from notebooks.stories.augment_loops import load_ms, pace_ms, photo_loader, train_epoch

gpu = cu.get_accelerator(step_ms=0.4 * both_ms)
augmenting, decoding = photo_loader(augmented), photo_loader(photos)
starved = train_epoch(gpu, augmenting, step_ms=gpu.step_ms)
starved.timeline()

# %%
cu.reveal("08b", 100 * starved.summary().idle)

# %% [markdown]
# More than the fifth that the arithmetic gives. Look at the rows of the workers: they hardly rest, and most of their time
# goes to *transform* and *collate*. The second is a surprise: a number in float32 has four bytes instead of one, and all of them travel through shared memory.
#
# ## On the device
#
# Now the workers only decode. The loop sends `uint8`, and one more line augments on the GPU:
#
# ```python
# for images, labels in gpu.pinned(trace.batches(loader)):
#     batch = gpu.upload(images, non_blocking=True)   # uint8
#     batch = gpu.launch(augment, batch, ms=1)        # float32
#     gpu.step(batch)
# ```
#
# On an emulated GPU the augmentation takes 1 ms because we say so; a timed loop leaves out its values, since the cores
# that would compute them are those of the workers. On CUDA it is all real. <!-- given -->

# %%
from course_utils.measure.picture import Timeline

fed = train_epoch(gpu, decoding, step_ms=gpu.step_ms, augment=augment, augment_ms=1)
Timeline({"in the workers": starved, "on the device": fed})

# %%
for name, trace in ("in the workers", starved), ("on the device", fed):
    print(f"{name}: idle {100 * trace.summary().idle:2.0f} %, {pace_ms(trace):.1f} ms per step")

# %% [markdown]
# Two ideas did that: what the device augments takes no core, and **uint8 crosses the bus, float is made behind it**.
#
# ## A batch at a time
#
# `Augment` works on whole batches, torchvision in a worker on one photograph after the other. Is a batch faster on the
# *CPU*, too? Here: 64 photographs, one core, no workers.

# %%
cu.predict(
    "08c",
    "On the CPU: how many times faster is the batch of 64 than torchvision, one at a time?",
    unit="times",
)

# %%
images = torch.stack([photos[index][0] for index in range(0, 192, 3)])
alone = per_sample(augment)
ways = {
    "torchvision, one at a time": lambda: [alone(image) for image in images],
    "Augment, one at a time": lambda: [augment(image[None]) for image in images],
    "Augment, one batch": lambda: augment(images),
}
cpu_ms = {name: best_ms(way, times=3) for name, way in ways.items()}

# %%
from notebooks.stories.operations import count_operations

operations = {name: count_operations(way)[0].calls for name, way in ways.items()}
figure, panels = plt.subplots(1, 2, figsize=(10, 1.9), sharey=True, layout="constrained")
titles = "ms on one core of this CPU", "operations of torch"
for panel, title, bars in zip(panels, titles, (cpu_ms, operations), strict=True):
    drawn = panel.barh(list(bars), list(bars.values()), color=["C1", "C0", "C0"])
    panel.bar_label(drawn, fmt="{:,.0f}", padding=3, color=plt.rcParams["text.color"])
    panel.set(title=title, xticks=[])
    panel.margins(x=0.2)
panels[0].invert_yaxis()
plt.close()
figure

# %%
cu.reveal("08c", cpu_ms["torchvision, one at a time"] / cpu_ms["Augment, one batch"])

# %% [markdown]
# The batch is *slower* here. Between two operations one photograph stays in the processor's cache, a batch of them
# goes to memory and back. And torchvision stays in uint8 to the end and touches only the pixels of the window, where
# `Augment` multiplies whole images with matrices in float32: the kind of work that a GPU is made for.
#
# On a GPU the right picture counts. An operation is a **launch** or more, which costs the host some microseconds however
# little there is to do. One at a time, every photograph has launches of its own; in one batch their number does not
# grow with its size. So: one at a time in workers, a batch at a time on the device.
#
# ## Over the bus
#
# What shall cross it: photographs of 256² pixels as they were decoded, or augmented ones of 224² in float32?

# %%
cu.predict("08d", "How many times longer do the float32 crops take over the bus?", unit="times")

# %%
from notebooks.stories.augment_loops import copy_ms

parcels = {
    "float32, 224²": augment(images),
    "uint8, 256²": images,
    "uint8, 224²": images[:, :, :224, :224].contiguous(),
}
bus_ms = {name: copy_ms(gpu, parcel) for name, parcel in parcels.items()}

# %%
figure, panel = plt.subplots(figsize=(7, 1.7), layout="constrained")
drawn = panel.barh(list(bus_ms), list(bus_ms.values()), color=["C1", "C0", "C0"])
sizes = [f"{bus_ms[name]:.2g} ms, {parcel.nbytes / 1e6:.1f} MB" for name, parcel in parcels.items()]
panel.bar_label(drawn, sizes, padding=3, color=plt.rcParams["text.color"])
panel.set(xticks=[], title=f"64 photographs over the bus, pinned, {gpu.name}")
panel.invert_yaxis()
panel.margins(x=0.35)
plt.close()
figure

# %%
cu.reveal("08d", bus_ms["float32, 224²"] / bus_ms["uint8, 256²"])

# %% [markdown]
# Same size, uint8 instead of float32: a quarter. Whole frames: a third, since part of what they carry is thrown away.
# A crop of fixed size costs the worker nothing, it is a slice; so the cheapest parcel is the last.
#
# ### Exercise 8.1 · 5 min · ●●○
#
# This runs in the workers. Split it: what `in_worker` returns is collated and crosses the bus, `on_device` gets the
# whole batch. Target: the same values, a quarter of the bytes, and the worker writes no byte more than it
# sends. On the device, no loop over the images.


# %%
# %%worker_module all_in_the_worker
import torch

from notebooks.exercises.nb08.problem import MEAN, STD


def all_in_the_worker(image: torch.Tensor, top: int, left: int, flip: bool) -> torch.Tensor:
    image = image / 255
    image = (image - MEAN) / STD
    image = image[:, top : top + 224, left : left + 224]
    return image.flip(-1) if flip else image


# %% [markdown]
# <details><summary>Hint 1: what stays in the worker</summary>
#
# Only what makes the parcel smaller and costs nothing: the slice.
#
# </details>
# <details><summary>Hint 2: a flip for some</summary>
#
# `torch.where(condition, a, b)` chooses; `flips.view(-1, 1, 1, 1)` makes one condition per image. MEAN and STD lie in host
# memory: `MEAN.to(images.device)`.
#
# </details>


# %%
# %%worker_module my_split
import torch

from notebooks.exercises.nb08.problem import MEAN, STD


def in_worker(image: torch.Tensor, top: int, left: int) -> torch.Tensor:
    """Return what crosses the bus; image is uint8 (3, 256, 256)."""
    return image[:, top : top + 224, left : left + 224]  ### SOLUTION


def on_device(images: torch.Tensor, flips: torch.Tensor) -> torch.Tensor:
    """Return float32 of (batch, 3, 224, 224); flips is bool (batch,)."""
    ### BEGIN SOLUTION
    mean, std = MEAN.to(images.device), STD.to(images.device)
    images = (images / 255 - mean) / std
    return torch.where(flips.view(-1, 1, 1, 1), images.flip(-1), images)
    ### END SOLUTION


# %%
cu.check("08.1", in_worker, on_device)

# %% [markdown] tags=["instructor"]
# **Instructor.** 08a: most get it; ask what happens with a hundred copies. 08b: guesses around 20. 08c is the
# surprise: nearly all expect 2 to 10 times *faster*. 08d: some say 4; ask which pixels the fourth quarter was.
# In 8.1 many normalise in the worker out of habit, and some send the whole frame.

# %% [markdown]
# ## One set for all
#
# Transforms of torchvision take batches, too. So why not write `v2.RandomResizedCrop(224)(batch)` on the device? Here is
# a batch of copies of one photograph, 64 of them.

# %%
cu.predict("08e", "How many different crops come out of it?")

# %%
from kornia.augmentation import RandomResizedCrop
from torchvision.transforms import v2

one_set = v2.RandomResizedCrop(224)(cat) / 255
kornias = RandomResizedCrop((224, 224))(cat / 255)
ours = augment.visible(cat, draw(cat))
show({"torchvision, a batch": one_set, "Kornia, a batch": kornias, "Augment, a batch": ours})

# %%
cu.reveal("08e", len({crop.numpy().tobytes() for crop in one_set}))

# %% [markdown]
# One. It draws once per *call*, and a batch is one call. No error, no warning: all images of a batch just share one
# window, and with `ColorJitter` one brightness. It is right for video, whose frames belong together. For a
# batch each sample needs random numbers of its own: a **tensor** of offsets, not a number.
#
# ### Exercise 8.2 · 6 min · ●●●
#
# Cut a window of `size` by `size` pixels out of each image of a batch, at a place of its own. Target: uint8 in and out,
# all places possible, repeatable with the generator, and the number of torch operations does not grow with the
# batch. The images of the check say in each pixel where it came from.
#
# <details><summary>Hint 1: offsets</summary>
#
# `torch.randint(low, high, shape, generator=generator)` leaves out `high`. A window as large as the image has one
# place.
#
# </details>
# <details><summary>Hint 2, after three minutes: all windows at once</summary>
#
# `images[samples, channels, rows, columns]` takes tensors as indices and broadcasts them. Shapes: (batch, 1, 1, 1),
# (channels, 1, 1), (batch, 1, size, 1), (batch, 1, 1, size).
#
# </details>


# %%
# %%worker_module my_crops
import torch


def random_crops(images: torch.Tensor, size: int, generator: torch.Generator) -> torch.Tensor:
    batch, channels, height, width = images.shape
    ### BEGIN SOLUTION
    place = batch, 1, 1, 1
    top = torch.randint(height - size + 1, place, generator=generator).to(images.device)
    left = torch.randint(width - size + 1, place, generator=generator).to(images.device)
    window = torch.arange(size, device=images.device)
    samples = torch.arange(batch, device=images.device).view(place)
    colours = torch.arange(channels, device=images.device).view(-1, 1, 1)
    return images[samples, colours, top + window.view(-1, 1), left + window]
    ### END SOLUTION


# %%
cu.check("08.2", random_crops)

# %% [markdown]
# ## When it makes training slower
#
# What the GPU augments takes time of the GPU. L: loading a batch on one core without augmentation; C: the step; A: the
# augmentation on the device; W workers, each with a core.
#
# - in the workers: **T = max(C, (L + augmentation) / W)**
# - on the device: **T = max(C + A, L / W)**
#
# Now a larger model. Its step takes twice as long as the workers need for a batch. (The GPU is emulated here on every machine,
# since we choose how long it augments.)

# %%
cu.predict(
    "08f",
    "The workers keep up. The augmentation moves to the device, where it takes a quarter of a "
    "step. How much longer does a step take?",
    unit="%",
)

# %%
chosen = cu.get_accelerator(emulate=True)
workers_ms = pace_ms(starved)  # what the workers need for a batch, augmented
parts = 0.25, 0.75  # A / C


def train(c):
    """Return the trace with the workers augmenting, and one with the device for each A."""
    device = {"augment": augment, "step_ms": c}
    traces = [train_epoch(chosen, decoding, augment_ms=part * c, **device) for part in parts]
    return [train_epoch(chosen, augmenting, step_ms=c), *traces]


# %%
steps_ms = {"the GPU starves": workers_ms / 3, "the GPU is the bottleneck": 2 * workers_ms}
measured = {"the GPU starves": train(workers_ms / 3)}

# %%
measured["the GPU is the bottleneck"] = train(2 * workers_ms)

# %%
figure, panels = plt.subplots(1, 2, figsize=(10, 2.8), sharey=True, layout="constrained")
more_ms, less_ms = load_ms(starved), load_ms(fed)  # L with and without augmentation
for panel, (name, c) in zip(panels, steps_ms.items(), strict=True):
    cpu, *device = [pace_ms(trace) / c for trace in measured[name]]
    panel.axhline(max(1, more_ms / 2 / c), color="C0", label="workers, predicted")
    panel.plot(0, cpu, "oC0", clip_on=False, label="workers, measured")
    predicted = [max(1 + a, less_ms / 2 / c) for a in (0, *parts)]
    panel.plot([0, *parts], predicted, "--C1", label="device, predicted")
    panel.plot(parts, device, "sC1", label="device, measured")
    panel.set(title=f"{name} ({chosen.name})", xlabel="A / C", ylim=0)
panels[0].set_ylabel("T / C")
panels[1].legend(fontsize="small", loc="upper right")
plt.close()
figure

# %%
workers, device, *_ = measured["the GPU is the bottleneck"]
cu.reveal("08f", 100 * (pace_ms(device) / pace_ms(workers) - 1))

# %% [markdown]
# Left the workers are the bottleneck, and everything below the line is a gain. Right they are not, and all that moves to
# the GPU is paid for in full. "Offload it entirely" helps a GPU that waits; one that works it slows down.
#
# A copy of the batch and what the augmentation computes in between take device memory, too. Where the model fills it, this
# decides.
#
# ### Exercise 8.3 · 4 min · ●●○
#
# Where to augment, and how long does a step take then? As many workers as cores, all the time. Target: the smaller T,
# and nothing that does not fit; the check tries these three jobs and sixty more.

# %%
from notebooks.exercises.nb08.problem import JOBS, Job

print(" " * 15, *(f"{name:>12}" for name in JOBS))
for field in Job.__dataclass_fields__:
    print(f"{field:15}", *(f"{getattr(job, field):12,}" for job in JOBS.values()))

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Write down both times first. On the device the workers still read and decode.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `if job.augment_mb <= job.free_mb and on_device < in_workers:` and then two returns.
#
# </details>


# %%
def where_to_augment(job: Job) -> tuple[str, float]:
    """Return "CPU" or "GPU", and the ms of a step there."""
    ### BEGIN SOLUTION
    in_workers = max(job.step_ms, (job.load_ms + job.augment_cpu_ms) / job.cores)
    on_device = max(job.step_ms + job.augment_gpu_ms, job.load_ms / job.cores)
    if job.augment_mb <= job.free_mb and on_device < in_workers:
        return "GPU", on_device
    return "CPU", in_workers
    ### END SOLUTION


cu.check("08.3", where_to_augment)

# %% [markdown] tags=["instructor"]
# **Instructor.** 08e: whoever has used v2 says 64. Leave the picture up and wait; then ask who has it in their code. 08f:
# many say 0, "the GPU is so fast". In 8.2 the loop comes first, then one offset for all.
#
# What goes wrong: on a machine that is busy otherwise the left panel shows measured points above the lines, since the
# workers share their cores.

# %% [markdown]
# ## Who does what
#
# | | torchvision v2 | Kornia | DALI |
# |---|---|---|---|
# | works on | a sample, or a batch with one set of parameters | a batch, a set for each sample | a batch, a set for each sample |
# | runs on | CPU, CUDA | CPU, CUDA | CPU, CUDA |
# | decodes JPEG | yes | with kornia-rs, which comes with it | yes, also partly on the GPU |
# | place in the loop | `Dataset`, in workers | after the copy, like a model | replaces `DataLoader` |
# | needs | nothing | nothing | Linux; CUDA for its GPU part |
#
# DALI is a pipeline of its own, with threads in place of workers. What it is made for needs an NVIDIA GPU, so this is to
# be read and is not run here:
#
# ```python
# @pipeline_def(batch_size=64, num_threads=4, device_id=0)
# def training():
#     files, labels = fn.readers.file(file_root=folder, random_shuffle=True)
#     images = fn.decoders.image(files, device="mixed")           # begins on the CPU, ends on the GPU
#     images = fn.random_resized_crop(images, size=(224, 224))    # on the GPU: a window per sample
#     flips = fn.random.coin_flip()
#     images = fn.crop_mirror_normalize(images, mirror=flips, mean=MEAN_255, std=STD_255)
#     return images, labels
# ```
#
# It is often said to take the work off the CPU entirely. Its decoder, nvJPEG, is a hybrid: for photographs below a million
# pixels the CPU does the first part, unless the GPU has a JPEG decoder in hardware, as the A100 has. The rest costs what
# you have just measured: time and memory of the GPU. In a tutorial of NERSC on an A100, eight workers gave 12.2 samples/s, DALI 13.2, and mixed
# precision then 54.2: that training had waited for its GPU, not for its data.

# %% [markdown]
# ## You now can
#
# - say what augmented copies cost and how much diversity they give,
# - keep in the workers what makes the parcel small, and send uint8 over the bus,
# - augment a batch on the device, with random numbers for each sample and no loop,
# - spot an augmentation that draws once for the whole batch,
# - predict when augmenting on the GPU helps, and when it slows training down.
#
# Next: copy the next batch while the GPU computes.
