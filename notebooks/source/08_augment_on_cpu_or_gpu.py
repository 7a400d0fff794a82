# %% [markdown]
# # 08 · Augment on the CPU or on the GPU
#
# {here: decode, collate, transfer, compute}
#
# **You will do:** let augmentation starve a GPU, move it to the device, and find out when that's a mistake.
#
# **You will learn:**
#
# - which work belongs in a worker, and which dtype should cross the bus; <!-- 08a 08b 8.1 -->
# - why one set of random numbers for a whole batch is a bug; <!-- 08c 8.3 -->
# - to predict from five numbers where augmentation belongs. <!-- 8.2 -->
#
# **You need:** notebooks 01 and 02. A CPU is enough.
#
# **Minutes:** {minutes}.

# %%
import course_utils as cu

cu.ready("08")

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Script.**
#
# - *5 min* **Augment.** Show an original and its augmentations. Should this happen before the training, in the workers,
#   or on the device?
# - *5 min* **In the workers.** Look at the colors *transform* and *collate*.
# - *8 min* **On the device.** Prediction 08a with a show of hands, then the two timelines.
# - *17 min* **Over the bus.** Prediction 08b, then exercise 8.1.
# - *3 min* **One set of random numbers for all.** Prediction 08c. Show the picture and wait. Then ask who has this in
#   their code.
# - *12 min* **When it makes training slower.** Write both formulas on the board, then exercise 8.2.
#
# **Leave out.** Exercise 8.2. Calculate one job together, on the board.
#
# **Board.** Draw one row: read, decode, crop, flip, colors, float, normalize, step. The bus is a line that cuts this
# row, and all this notebook does is move that line.

# %% [markdown]
# ## Augment
#
# An augmentation changes a sample at random but keeps its label true. You crop, flip or brighten a photograph, or you
# rotate an event together with its direction, so the model sees something new in every epoch. A cat stays a cat, even
# upside down. Here's an original, with augmentations by `Augment`:

# %%
import torch

from course_utils.loading.images import Augment
from course_utils.stories.augmenting import show
from keepfed.loaders.images import Jpegs

folder = cu.data_path("images", "S")
photos, augment = Jpegs(folder), Augment(size=224)
cat = photos[30][0].expand(64, -1, -1, -1)  # uint8 (64, 3, 256, 256): the same one 64 times
seen = augment.visible(cat, augment.draw(cat.shape, generator=torch.Generator().manual_seed(0)))
show({"a photograph, and seven augmentations": torch.cat([cat[:1, :, 16:240, 16:240] / 255, seen])})

# %% [markdown]
# Where would you do this? There are three places:
#
# | Where | Disk | What the model sees | Costs |
# |---|---|---|---|
# | before the training: copies on disk | every copy | the same copies, again and again | reading more |
# | during the training, in the workers | nothing | something new in each epoch | CPU time |
# | during the training, on the GPU | nothing | something new in each epoch | GPU time |
#
# Ten copies of each photograph need ten times the disk space, and their diversity ends after ten epochs. Work before the
# training pays if it's slow and *not* random: resize each photograph to 256 pixels once, for example, and store it.
# Random work belongs in the loop. But in which part of the loop?
#
# ## In the workers
#
# First the usual place. How much time of one core does a batch of 16 photographs cost? <!-- given -->

# %%
from timeit import repeat

from course_utils.loading.images import per_sample

augmented = Jpegs(folder, per_sample(augment))  # the same augmentation, by torchvision's transforms


def best_ms(work, times=5):
    return 1e3 * min(repeat(work, number=1, repeat=times))


def batch_ms(dataset):
    return best_ms(lambda: [dataset[index] for index in range(0, 160, 10)])


decode_ms, both_ms = batch_ms(photos), batch_ms(augmented)
print(f"read and decode: {decode_ms:.1f} ms, and augment: {both_ms:.1f} ms")

# %% [markdown]
# Crop, flip, brightness, contrast, float and normalize cost more than decoding the JPEG. Now let's train. The loop is
# written in torch's own words, and `with cu.emulated_cuda(gpu):` lets them act on an emulated GPU if you have no real one
# (notebook 09 tells you more). There the augmentation has to be *launched* with a time that we choose. On CUDA, it's one
# plain call, `images = augment(images)`.


# %%
def train(gpu, loader, step_ms, augment=None, augment_ms=0):
    """Run an epoch without reading losses, and return the trace."""
    with cu.emulated_cuda(gpu), cu.record() as trace:
        for images, _ in gpu.pinned(trace.batches(loader)):
            images = images.to("cuda", non_blocking=True)
            if augment is not None:
                images = gpu.launch(augment, images, ms=augment_ms)
            gpu.step(images, ms=step_ms)
        torch.cuda.synchronize()
    return trace


# %%
from course_utils.stories.augmenting import load_ms, pace_ms, photo_loader, steady

gpu = cu.get_accelerator(step_ms=0.4 * both_ms)
augmenting, decoding = photo_loader(augmented), photo_loader(photos)
starved = steady(lambda: train(gpu, augmenting, gpu.step_ms))
print(f"a batch alone on one core: {both_ms:.0f} ms, in two workers: {load_ms(starved):.0f} ms")
starved.timeline()

# %% [markdown]
# Say one core needs the time t for such a batch, and a step takes 0.4 t, as we chose it here. Two workers deliver a batch
# every 0.5 t, so the GPU should be idle for a fifth of the time. Is yours idle for longer? Then compare the two times
# above. Two workers and the loop share the cores, the caches and the memory, so a worker needs more time for a batch than
# a core that has the machine to itself. <!-- notebook -->If it needs twice as long or more, other programs are running,
# so run the cells again later.<!-- end --> <!-- given -->
#
# In the timeline the workers hardly rest, and most of what they do is *transform* and *collate*. Why is collating so
# slow? A float32 number has four bytes instead of one, and all of them are copied to shared memory.
#
# ## On the device
#
# Let's relieve the workers. They only decode now, which is a fraction of their work, the loop sends `uint8`, and the GPU
# augments in 1 ms. (On an emulated GPU we chose this time, and its values aren't computed, because that would use the
# cores that the workers need. On CUDA everything is real.) <!-- given -->

# %%
cu.predict(
    "08a",
    "The workers only decode, and the GPU augments. How many times as fast is the training?",
    unit="times",
)

# %%
from keepfed.measure.picture import Timeline

device = {"augment": torch.zeros_like if gpu.emulated else augment, "augment_ms": 1}
fed = steady(lambda: train(gpu, decoding, gpu.step_ms, **device))
Timeline({"in the workers": starved, "on the device": fed})

# %%
print(f"work of a worker per batch: {load_ms(starved):.0f} and {load_ms(fed):.0f} ms")
for name, trace in ("in the workers", starved), ("on the device", fed):
    print(f"{name}: {pace_ms(trace):.1f} ms per step, of which the GPU needs {gpu.step_ms:.1f}")
cu.reveal("08a", pace_ms(starved) / pace_ms(fed))

# %% [markdown]
# The workers shed more work than the training gained, because it now runs into the next limit: a step can't be shorter
# than what the GPU needs.
#
# Two ideas made it faster: work on the device needs no core, and **uint8 crosses the bus before it becomes float**. How
# much is the second one worth?
#
# ## Over the bus
#
# The bus connects the host and the GPU. What takes longer to cross it, decoded photographs of 256² pixels, or augmented
# ones of 224² pixels in float32?

# %%
cu.predict("08b", "How many times as long do the float32 crops take over the bus?", unit="times")

# %%
from course_utils.stories.augmenting import copy_ms
from course_utils.stories.figures import bars

images = torch.stack([photos[index][0] for index in range(0, 192, 3)])  # 64 photographs
crops = images[:, :, :224, :224].contiguous()
parcels = {"float32, 224²": crops.float(), "uint8, 256²": images, "uint8, 224²": crops}
bus_ms = {name: copy_ms(gpu, parcel) for name, parcel in parcels.items()}
bars(bus_ms, f"ms for 64 photographs over the bus, pinned, {gpu.name}")

# %%
cu.reveal("08b", bus_ms["float32, 224²"] / bus_ms["uint8, 256²"])

# %% [markdown]
# In uint8, crops of the same size take a quarter of the time of float32. Whole photographs take a third, because the
# pixels outside the crop travel as well. A crop of fixed size is a slice, which costs the worker nothing, so uint8 crops
# are the cheapest.
#
# ### Exercise 8.1 · 10 min · ●●○
#
# The function below does everything in the workers, so split it: the results of `in_worker` are collated and cross the
# bus, and `on_device` gets the whole batch. Targets:
#
# - the same values as before, and a quarter of the bytes over the bus;
# - the worker only crops, and computes nothing;
# - on the device there's no loop over the images, and the program never waits for the device.


# %%
# %%worker_module all_in_the_worker
import torch

from course_utils.exercises.nb08.problem import MEAN, STD


def all_in_the_worker(image: torch.Tensor, top: int, left: int, flip: bool) -> torch.Tensor:
    image = image / 255
    image = (image - MEAN) / STD
    image = image[:, top : top + 224, left : left + 224]
    return image.flip(-1) if flip else image


# %% [markdown]
# <details><summary>Hint 1: what stays in the worker</summary>
#
# Only the slice. It makes the data smaller and costs nothing.
#
# </details>
# <details><summary>Hint 2: a flip for some</summary>
#
# `torch.where(condition, a, b)` chooses, and `flips.view(-1, 1, 1, 1)` is one condition per image. `images[flips]`
# chooses as well, but then the program waits until the device knows how many images there are.
#
# </details>
# <details><summary>Hint 3: MEAN and STD are in host memory</summary>
#
# On CUDA, `MEAN.to(images.device, non_blocking=True)` copies one of them. Without `non_blocking`, the program waits in
# each step until the device has finished all earlier work. On other devices leave it out, because the copy may then hold
# wrong values: write `non_blocking=images.is_cuda`. (A real training keeps such constants on the device.)
#
# </details>


# %%
# %%worker_module my_split
import torch

from course_utils.exercises.nb08.problem import MEAN, STD


def in_worker(image: torch.Tensor, top: int, left: int) -> torch.Tensor:
    """Return the part of image that crosses the bus. It is uint8 (3, 256, 256)."""
    return image[:, top : top + 224, left : left + 224]  ### SOLUTION


def on_device(images: torch.Tensor, flips: torch.Tensor) -> torch.Tensor:
    """Return float32 (batch, 3, 224, 224). flips is bool (batch,)."""
    ### BEGIN SOLUTION
    there = {"device": images.device, "non_blocking": images.is_cuda}
    mean, std = (constant.to(**there) for constant in (MEAN, STD))
    images = (images / 255 - mean) / std
    return torch.where(flips.view(-1, 1, 1, 1), images.flip(-1), images)
    ### END SOLUTION


# %%
cu.check("08.1", in_worker, on_device)

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **08a** Tempting: 3, because the workers have a third of the work. Whatever they deliver, the GPU needs its step,
#   so the formula gives 0.5 / 0.4. Most machines show more. Why? The workers and the loop share cores and memory.
# - **08b** Tempting: 4, because of the bytes. Ask which pixels the last quarter was. It's about 3, because whole
#   photographs include pixels that no crop uses.
#
# **Goes wrong.**
#
# - In 8.1 it's a habit to normalize in the worker, or to send the whole photograph. Ask how many bytes cross the bus.

# %% [markdown]
# ## One set of random numbers for all
#
# The transforms of torchvision accept batches, too, so why not call `v2.RandomResizedCrop(224)(batch)` on the device?
# Let's try. This batch has 64 copies of one photograph.

# %%
cu.predict("08c", "How many different crops come out of it?")

# %%
from kornia.augmentation import RandomResizedCrop
from torchvision.transforms import v2

one_set = v2.RandomResizedCrop(224)(cat) / 255
kornias = RandomResizedCrop((224, 224))(cat / 255)
show({"torchvision, a batch": one_set, "Kornia, a batch": kornias, "Augment, a batch": seen})

# %%
cu.reveal("08c", len({crop.numpy().tobytes() for crop in one_set}))

# %% [markdown]
# Only one. The transform draws once per *call*, and a batch is one call. You get no error and no warning, while all
# images of a batch share one window, and with `ColorJitter` one brightness. For a video that's right, because its frames
# belong together, but in a batch each sample needs its own random numbers. [Kornia](https://kornia.readthedocs.io) and
# `Augment` therefore draw a **tensor** of offsets, and so will you in exercise 8.3.
#
# ## When it makes training slower
#
# So far the GPU had time to spare. What if it hasn't? Augmentation on the GPU takes GPU time. L is the time to load a
# batch on one core without augmentation, C is the step time, and A is the time of the augmentation on the device. There
# are W workers, each with its own core. Then a step of the loop takes
#
# - with the augmentation in the workers: **T = max(C, (L + augmentation) / W)**
# - on the device: **T = max(C + A, L / W)**
#
# Besides our starving GPU, let's take a larger model, whose step takes twice as long as the workers need for a batch. We
# move the augmentation to the device for both. Which of them gets faster? (The GPU is emulated here on every machine,
# because we choose how long it augments. With a real GPU, the waiting program uses one core, so subtract one from the
# workers.)

# %%
from functools import partial

chosen = cu.get_accelerator(emulate=True)
workers_ms = pace_ms(starved)  # time of the workers for an augmented batch
parts = 0.25, 0.75  # A / C


def runs(c):
    """Return C and traces: one for the workers, then one for the device with each A."""
    device = [{"augment": torch.zeros_like, "augment_ms": part * c} for part in parts]
    jobs = [(augmenting, {}), *((decoding, work) for work in device)]
    return c, [steady(partial(train, chosen, loader, c, **work)) for loader, work in jobs]


# %%
trained = {"the GPU starves": runs(workers_ms / 3)}

# %%
trained["the GPU is the bottleneck"] = runs(2 * workers_ms)

# %%
from course_utils.stories.figures import drawing

with drawing(10, 3.1, columns=2, sharey=True) as (figure, panels):
    for panel, (name, (c, traces)) in zip(panels, trained.items(), strict=True):
        more, less = (load_ms(trace) / 2 / c for trace in traces[:2])  # L / W / C
        workers, *device = (pace_ms(trace) / c for trace in traces)
        panel.axhline(max(1, more), color="C0", label="workers, predicted")
        panel.plot(0, workers, "oC0", clip_on=False, label="workers, measured")
        lines = [max(1 + a, less) for a in (0, *parts)]
        panel.plot([0, *parts], lines, "--C1", label="device, predicted")
        panel.plot(parts, device, "sC1", label="device, measured")
        panel.set(title=name, xlabel="A / C", ylabel="T / C", ylim=0)
    panel.legend()
figure

# %% [markdown]
# On the left, the workers are the bottleneck, and everything below the blue line is a gain. On the right they aren't, and
# the GPU pays the full A on every step. "Move everything to the GPU" helps a GPU that waits, and slows down a GPU that is
# busy.
#
# Augmentation also needs device memory, for a copy of the batch and for intermediate results. If the model already fills
# the memory, you have no choice: augment in the workers.
#
# ### Exercise 8.2 · 5 min · ●○○
#
# Where should a job augment, and how long does a step take then? There are always as many workers as cores. Target:
# return the place with the smaller T, where the GPU counts only if the augmentation fits into its memory. The check tries
# these three jobs and hundreds of others.

# %%
from course_utils.exercises.nb08.problem import JOBS, AugmentJob

print(" " * 15, *(f"{name:>12}" for name in JOBS))
for field in AugmentJob.__dataclass_fields__:
    print(f"{field:15}", *(f"{getattr(job, field):12,}" for job in JOBS.values()))

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Write down both times first. The workers always read and decode.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Write `if job.augment_mb <= job.free_mb and on_device < in_workers:` and then two returns.
#
# </details>


# %%
def where_to_augment(job: AugmentJob) -> tuple[str, float]:
    """Return "CPU" or "GPU", and the step time there in ms."""
    ### BEGIN SOLUTION
    in_workers = max(job.step_ms, (job.load_ms + job.augment_cpu_ms) / job.cores)
    on_device = max(job.step_ms + job.augment_gpu_ms, job.load_ms / job.cores)
    if job.augment_mb <= job.free_mb and on_device < in_workers:
        return "GPU", on_device
    return "CPU", in_workers
    ### END SOLUTION


cu.check("08.2", where_to_augment)

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **08c** Tempting: 64, because there are 64 images. It's 1.
#
# **Goes wrong.**
#
# - If other programs run, the left panel shows measured points above the lines, because the workers share their cores.
#   If no two of three runs agree, the cell prints a warning. Run it again.
# - In 8.2 it's easy to forget the memory, or to choose the smaller time although the augmentation doesn't fit.

# %% [markdown]
# ## You now can
#
# - keep only work in the workers that makes the data smaller, and send uint8 over the bus;
# - augment a batch on the device without a loop over its images;
# - find an augmentation that draws once for the whole batch;
# - predict when augmentation on the GPU helps, and when it slows down the training.
#
# Next: [09 Prefetch to CUDA](09_prefetch_to_cuda.ipynb), because those small uint8 batches still travel while the GPU
# waits, and you can copy the next one while it computes.

# %% [markdown]
# # Extra
#
# The core ends here. No later notebook's core needs the sections below, and each section needs only the core.

# %% [markdown]
# ## One window per sample
#
# ### Exercise 8.3 · 20 min · ●●●
#
# Cut a window of `size` by `size` pixels out of each image of a batch, each at its own random place.
# Targets:
#
# - uint8 in, uint8 out, and all places equally likely;
# - the same windows again for the same state of the generator;
# - the same number of torch operations for every batch size, and no waiting if the images are on a GPU.
#
# In the images of the check, the values of a pixel state its position.
#
# <details><summary>Hint 1: offsets</summary>
#
# `torch.randint(low, high, shape, generator=generator)` excludes `high`. A window as large as the image
# has one possible place.
#
# </details>
# <details><summary>Hint 2, after five minutes: all windows at once</summary>
#
# `images[samples, channels, rows, columns]` accepts tensors as indices and broadcasts them. Their shapes
# are (batch, 1, 1, 1), (channels, 1, 1), (batch, 1, size, 1) and (batch, 1, 1, size). Create them with
# `device=images.device`.
#
# </details>


# %%
# %%worker_module my_crops
import torch


def random_crops(images: torch.Tensor, size: int, generator: torch.Generator) -> torch.Tensor:
    batch, channels, height, width = images.shape
    ### BEGIN SOLUTION
    place, there = (batch, 1, 1, 1), {"device": images.device, "non_blocking": images.is_cuda}
    top = torch.randint(height - size + 1, place, generator=generator).to(**there)
    left = torch.randint(width - size + 1, place, generator=generator).to(**there)
    window = torch.arange(size, device=images.device)
    samples = torch.arange(batch, device=images.device).view(place)
    colors = torch.arange(channels, device=images.device).view(-1, 1, 1)
    return images[samples, colors, top + window.view(-1, 1), left + window]
    ### END SOLUTION


# %%
cu.check("08.3", random_crops)

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **08d** Tempting: 2 to 10, because batches are faster. On a CPU the batch is slower, because it doesn't fit into
#   the processor's cache.
# - **08e** Tempting: 2, because there are two cores. It's several times that. Which work was unnecessary before?
#
# **Goes wrong.**
#
# - In 8.3 it's tempting to write the loop, and then one offset for all. Ask for the number of operations, and for the
#   number of different windows.
#
# **Extra.** Homework: 8.3, a batch at a time, the fast image loader, libraries. If you have ten minutes left, run the
# image loaders together. Before each one, ask which work it avoids.

# %% [markdown]
# ## A batch at a time
#
# `Augment` works on whole batches, and torchvision in a worker works on one photograph at a time. On a GPU you want
# batches. Is a batch faster on the *CPU*, too? We measure 64 photographs on one core, without workers.

# %%
cu.predict(
    "08d",
    "On the CPU, how many times as fast is the batch of 64 as torchvision, one at a time?",
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
from course_utils.stories.operations import count_operations

operations = {name: count_operations(way)[0].calls for name, way in ways.items()}
print("operations of torch:", operations)
bars(cpu_ms, "ms on one core of this CPU")

# %%
cu.reveal("08d", cpu_ms["torchvision, one at a time"] / cpu_ms["Augment, one batch"])

# %% [markdown]
# The batch is *slower* here, and there are two reasons. First, `Augment` is slow on a CPU even with one photograph,
# because it multiplies whole images by matrices in float32, while torchvision stays in uint8 to the end and computes only
# the pixels of the window. A GPU is made for the work of `Augment`. Second, one photograph stays in the processor's cache
# between two operations, while a batch of 64 goes to memory and back.
#
# On a GPU, count the operations instead. Each is one **launch** or more, and each launch costs the host a few
# microseconds, even for little work. One at a time, every photograph has its own launches, while in one batch their
# number doesn't depend on the batch size. Have you got a GPU? torchvision's transforms run where the tensor is, so the
# same three ways run there, unchanged:

# %%
if torch.cuda.is_available():
    images = images.to("cuda")  # the ways use it
    gpu_ms = {n: best_ms(lambda w=w: (w(), torch.cuda.synchronize()), 3) for n, w in ways.items()}
    display(bars(gpu_ms, f"ms for 64 photographs on the {gpu.name}"))
else:
    print("There is no CUDA here. On a machine with a GPU, this cell measures the ways on it.")

# %% [markdown]
# So augment one at a time in workers, and one batch at a time on the device.
#
# ## A fast image loader, step by step
#
# This notebook still loads its photographs in the most common way: one file each, decoded completely by PIL, then a chain
# of transforms. How fast can a CPU do this, with a random crop and flip for each photograph? As in notebook 06, we improve
# the loader step by step.

# %%
cu.predict(
    "08e",
    "One process loads photographs with ImageFolder. How many times as many photographs a second "
    "can all cores of this machine load?",
    unit="times",
)

# %%
import time

ladder = {}


def climb(name, loader):
    """Load epochs for a second, and keep the fastest. Other programs only slow it down."""
    seconds, served = [], 0
    while len(seconds) < 3 or sum(seconds[1:]) < 1:
        start = time.perf_counter()
        batches = (batch["labels"] if isinstance(batch, dict) else batch[1] for batch in loader)
        served = sum(map(len, batches))
        seconds.append(time.perf_counter() - start)
    ladder[name] = served / min(seconds)
    print(f"{name}: {ladder[name]:,.0f} photographs/s, {served} served")


# %%
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder

from keepfed.loaders.images import IMAGENET_MEAN, IMAGENET_STD

chain = v2.Compose(
    [
        v2.RandomResizedCrop(224),
        v2.RandomHorizontalFlip(),
        v2.ToImage(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(list(IMAGENET_MEAN), list(IMAGENET_STD)),
    ]
)
files = DataLoader(ImageFolder(folder, chain), 50, shuffle=True)
climb("ImageFolder", files)

# %%
options = {"num_workers": 2, "persistent_workers": True}
climb("two workers", DataLoader(files.dataset, 50, shuffle=True, **options))

# %% [markdown]
# The next loader changes three things at once:
#
# - One file with an index contains all JPEGs.
# - Decoded pixels go into reused memory, because each page of new memory must be cleared first.
# - torch resizes, flips and normalizes a photograph in one go, while it is in the processor's cache.

# %%
import tempfile
from pathlib import Path

from keepfed.loaders.images import ImageLoader, pack_images

room = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
packed = Path(room.name, "train.images")
print(f"packed into {pack_images(packed, folder):,} bytes")
climb("one file, one thread", ImageLoader(packed, 50, threads=1))

# %% [markdown]
# The codec and torch release Python's lock while they work, so **threads** are enough to use all cores, and no batch
# moves between processes. If the device normalizes, the host writes less, because the batch stays in uint8.

# %%
climb("a thread for each core", ImageLoader(packed, 50))
climb("uint8", ImageLoader(packed, 50, dtype="uint8"))

# %%
faster = {name: rate / ladder["ImageFolder"] for name, rate in ladder.items()}
bars(faster, "times as many photographs/s as ImageFolder", "{:.1f}".format)

# %%
cu.reveal("08e", faster["uint8"])

# %% [markdown]
# That's fast, but are the photographs still the same? Each draw depends only on the seed, the epoch and the photograph,
# so torchvision can use the same draws.

# %%
from torchvision.transforms.v2.functional import resized_crop

batch = next(iter(ImageLoader(packed, 50, dtype="uint8")))
windows, flips = ImageLoader(packed, 50).draw(batch["index"])
same = []
for at, index in enumerate(batch["index"]):
    theirs = resized_crop(photos[index][0], *windows[at].tolist(), [224, 224])
    same.append(torch.equal(batch["images"][at], theirs.flip(-1) if flips[at] else theirs))
print(f"{sum(same)} of {len(same)} are bit for bit those of torchvision")

# %% [markdown]
# If a photograph is reduced by a factor of two or more, the codec decodes it at a smaller size. It leaves out the fine
# parts of each block of 8 × 8 pixels, which changes a pixel by about one level of 255. <!-- given --> To read the code,
# start with `keepfed/src/keepfed/loaders/images/decoding.py`, which decodes and crops.
#
# For validation, `ImageLoader(packed, shuffle=False, crops=CenterCrop())` reads the file in its order. It serves the
# centers of the photographs without flips.
#
# ## Which library does what
#
# | | [torchvision v2](https://docs.pytorch.org/vision/stable/transforms.html) | [Kornia](https://kornia.readthedocs.io) | [DALI](https://docs.nvidia.com/deeplearning/dali/) |
# |---|---|---|---|
# | works on | a sample, or a batch with one set of parameters | a batch, a set for each sample | a batch, a set for each sample |
# | runs on | CPU, CUDA | CPU, CUDA | CPU, CUDA |
# | decodes JPEG | yes | with kornia-rs, which is installed with it | yes, even partly on the GPU |
# | place in the loop | `Dataset`, in workers | after the copy, like a model | instead of `DataLoader`, or behind it through its proxy |
# | needs | nothing | nothing | Linux, and CUDA for its GPU part |
#
# Appendix B explains what DALI takes off the CPU, and what it does not.

# %% [markdown]
# ## Shift each event as a whole
#
# You never know a detector exactly. Suppose its light yield is uncertain by 10 %. <!-- given --> If you don't want a
# network to depend on it, train on events whose charges are scaled by a random factor. All pulses of an event get the
# same factor, because they share the error. A contrastive loss compares two random *views* of the same event, and each
# view gets its own factor. The batch is a table of pulses with offsets (`Ragged`, notebook 01), on any device.

# %%
from course_utils.loading.events import MemmapEvents
from keepfed.loaders.ragged import RaggedCollate

events = MemmapEvents(cu.data_path("events", "S"))
pulses = RaggedCollate("pulses")(events.__getitems__(range(900, 964)))["pulses"]


def scale_charges(pulses, step, views=2, spread=0.1):
    generator = torch.Generator().manual_seed(step)  # its own, so no other random number changes
    factors = 1 + spread * torch.randn(views, len(pulses.offsets) - 1, generator=generator)
    return pulses.values[:, 1] * factors.to(pulses.values.device)[:, pulses.sample]


# %%
cu.predict(
    "08f",
    "Suppose that each pulse gets its own factor, with a spread of 10 %. By how much does the "
    "total charge of a typical event then scatter?",
    unit="%",
)

# %%
charge = pulses.values[:, 1]
views = {
    "a factor per event": scale_charges(pulses, step=0, views=500),
    "a factor per pulse": charge * (1 + 0.1 * torch.randn(500, len(charge))),
}
total = torch.segment_reduce(charge, "sum", offsets=pulses.offsets)
scatter = {}
for name, scaled in views.items():
    totals = torch.segment_reduce(scaled.T.contiguous(), "sum", offsets=pulses.offsets, axis=0)
    scatter[name] = 100 * float((totals.std(1) / total).median())
    print(f"{name}: the total charge scatters by {scatter[name]:.1f} %")

# %%
cu.reveal("08f", scatter["a factor per pulse"])

# %% [markdown]
# The factors of many pulses average out, so the network would never see the error that it should ignore. Draw a
# systematic shift once for each event and view, and noise for each pulse.
#
# ## Search for neighbors
#
# A graph network needs edges, so let's connect each pulse to the eight nearest ones of its event, in space and time.


# %%
def nearest(places, k=8):
    """Return the edges (2, k * nodes) from the k nearest nodes to each node of one graph."""
    near = torch.cdist(places, places).topk(k + 1, largest=False).indices[:, 1:]
    return torch.stack([near.flatten(), torch.arange(len(places)).repeat_interleave(k)])


# %%
from course_utils.loading.events import read_sensors

sensors = torch.from_numpy(read_sensors(events.folder))
time_ns, _, sensor, _ = pulses.values.T
places = torch.cat([sensors[sensor.long()], 0.3 * time_ns[:, None]], 1)  # light: 0.3 m in a ns
of_events = places.split(pulses.offsets.diff().tolist())
edges = [nearest(part) for part in of_events]
print(f"{len(places):,} nodes and {sum(part.shape[1] for part in edges):,} edges")

# %%
cu.predict(
    "08g",
    "Workers search for the neighbors. How many times larger is a batch with edges than without?",
    unit="times",
)

# %%
cu.reveal("08g", 1 + sum(part.nbytes for part in edges) / pulses.values.nbytes)

# %% [markdown]
# An edge is two int64 numbers, and a pulse is four float32 numbers. If you search on the device, the edges never cross
# the bus. This search uses the whole batch, padded with pulses that are infinitely far away, and runs on the GPU if
# there is one.


# %%
from course_utils.stories.operations import count_operations


def search_batch(padded, k=8):
    return torch.cdist(padded, padded).nan_to_num(nan=torch.inf).topk(k + 1, largest=False)


device = "cuda" if torch.cuda.is_available() else "cpu"
padded = torch.nn.utils.rnn.pad_sequence(of_events, True, torch.inf).to(device)
searches = {
    "in a worker, event by event": lambda: [nearest(part) for part in of_events],
    f"in the batch, on {device}": lambda: search_batch(padded).indices[0, 0, 0].item(),
}

# %%
search_ms = {name: best_ms(way) for name, way in searches.items()}
operations = {name: count_operations(way)[0].calls for name, way in searches.items()}
reading_ms = best_ms(lambda: events.__getitems__(range(900, 964)))
print(f"reading these 64 events takes {reading_ms:.1f} ms")
print("operations of torch:", operations)
bars(search_ms, "ms for a batch of 64 events")

# %% [markdown]
# The search takes far longer than reading. On a CPU, the search in the padded batch is the slower way. On a GPU, the
# number of operations matters, and the search in the batch needs the same number for any batch size. So search in the
# workers while they have time, and on the device once the workers or the bus are the limit.
#
# ## Join graphs
#
# The model needs one graph for each batch, but each graph numbers its nodes from 0. So if the first graph has three
# nodes, node 0 of the second graph becomes row 3 of the large one, and its edges are shifted by 3. The `Batch` of
# [PyTorch Geometric](https://pytorch-geometric.readthedocs.io) does this for you, and `CudaPrefetcher` (notebook 09)
# copies a whole `Batch` and protects its memory.

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **08f** Tempting: 10. It's 1 or 2, because the factors of many pulses average out. Which of the two kinds of error
#   does a wrong calibration cause?
# - **08g** Tempting: 2 or 3. It's 9: 16 bytes for a pulse, and 128 for its eight edges.
