# %% [markdown]
# # 08 · Augment on the CPU or on the GPU
#
# **You will do:** let augmentation starve a GPU, move it to the device, and find out when that is a mistake.
#
# **You will learn**
#
# - which part of the work belongs in a worker, and in which type it crosses the bus,
# - why one set of random numbers for a whole batch is a bug,
# - to predict from five numbers where augmentation belongs.
#
# **You need:** notebooks 01 and 02. A CPU is enough. **Minutes:** {minutes}.

# %%
import course_utils as cu

cu.ready("08")

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Script.**
#
# - *3 min* **Augment.** Show an original and what becomes of it; before the training, in the workers,
#   or on the device?
# - *3 min* **In the workers.** Prediction 08a; look at the colours *transform* and *collate*.
# - *3 min* **On the device.** The timeline before and after.
# - *11 min* **Over the bus.** Prediction 08b, then exercise 8.1.
# - *2 min* **One set of random numbers for all.** Prediction 08c. Leave the picture up and wait; then
#   ask who has it in their code.
# - *9 min* **When it makes training slower.** Both formulas on the board, prediction 08d, then
#   exercise 8.2.
#
# **Board.** One row: read, decode, crop, flip, colours, float, normalise, step. Draw the bus as a
# line that cuts it. All that this notebook does is to move the line.

# %% [markdown]
# ## Augment
#
# An augmentation changes a sample at random in such a way that its label stays true: a photograph is cropped, flipped or made a bit
# brighter, and an event is turned together with its direction. So the model sees something new in every epoch. Here is
# an original, and what `Augment` makes of it:

# %%
import torch

from course_stories.augmenting import bars, places, show
from course_utils.loading.images import Augment
from keepfed.loaders.images import Jpegs

folder = cu.data_path("images", "S")
photos, augment = Jpegs(folder), Augment(size=224)
cat = photos[30][0].expand(64, -1, -1, -1)  # uint8 (64, 3, 256, 256): the same one 64 times
seen = augment.visible(cat, augment.draw(cat.shape, generator=torch.Generator().manual_seed(0)))
show({"a photograph, and seven augmentations": torch.cat([cat[:1, :, 16:240, 16:240] / 255, seen])})

# %% [markdown]
# There are three places for this:
#
# | Where | Disk | What the model sees | Costs |
# |---|---|---|---|
# | before the training: copies on disk | every copy | the same copies, again and again | reading more |
# | during it, in the workers | nothing | something new in each epoch | CPU time |
# | during it, on the GPU | nothing | something new in each epoch | GPU time |
#
# Ten copies of each photograph cost ten times the disk, and diversity ends after ten epochs. Work before the training pays for
# what is slow and *not* random: resize once, to 256 pixels, and store that. What is random belongs in the loop. But who does it there?
#
# ## In the workers
#
# What does a batch of 16 photographs cost one core? <!-- given -->

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
# Crop, flip, brightness, contrast, float and normalise cost more than the JPEG does. Now let a step of
# the GPU take 0.4 of the time that one core needs for such a batch. Two workers should deliver a batch in 0.5 of that time, which is a little too slow. <!-- given -->

# %%
cu.predict("08a", "Two workers decode and augment. How idle is the GPU, start-up aside?", unit="%")

# %%
from course_stories.augmenting import load_ms, pace_ms, photo_loader, steady, train_epoch

gpu = cu.get_accelerator(step_ms=0.4 * both_ms)
augmenting, decoding = photo_loader(augmented), photo_loader(photos)
starved = steady(lambda: train_epoch(gpu, augmenting, step_ms=gpu.step_ms))
starved.timeline()


# %%
def idle(trace):
    """Return 1 - C / T in percent; T is the pace of the loop after its start-up."""
    return 100 * max(0, 1 - gpu.step_ms / pace_ms(trace))


print(f"a batch alone on one core: {both_ms:.0f} ms, in two workers: {load_ms(starved):.0f} ms")
cu.reveal("08a", idle(starved))

# %% [markdown]
# The arithmetic gives a fifth: 1 − 0.4 / 0.5. If your GPU is idle for longer, look at the two times above. Two workers and the
# loop share the cores, their caches and the memory, so that a batch takes each of them longer than it took a core that had the machine to itself. (If it takes twice as long or more, other programs are
# at work: run the cells again later.) <!-- given -->
#
# In the timeline the workers hardly rest, and most of their time goes to *transform* and *collate*. Collating takes so
# long because a number in float32 has four bytes instead of one, and all of them are copied to shared memory.
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
# On an emulated GPU the augmentation takes 1 ms because we say so, and launching it takes nothing. Its values are not
# computed there, since that would cost the cores that the workers need. On CUDA everything is real. <!-- given -->

# %%
from keepfed.measure.picture import Timeline

device = {"augment": augment, "augment_ms": 1}
fed = steady(lambda: train_epoch(gpu, decoding, step_ms=gpu.step_ms, **device))
Timeline({"in the workers": starved, "on the device": fed})

# %%
for name, trace in ("in the workers", starved), ("on the device", fed):
    print(f"{name}: {pace_ms(trace):.1f} ms per step, of which the GPU needs {gpu.step_ms:.1f}")

# %% [markdown]
# Two ideas did that: what the device augments takes no core, and **uint8 crosses the bus, float is made behind it**.
#
# ## Over the bus
#
# Which of the two should cross the bus, the line between host and GPU: photographs of 256² pixels as they were decoded, or augmented
# ones of 224² pixels in float32?

# %%
cu.predict("08b", "How many times as long do the float32 crops take over the bus?", unit="times")

# %%
from course_stories.augmenting import copy_ms

images = torch.stack([photos[index][0] for index in range(0, 192, 3)])  # 64 photographs
crops = images[:, :, :224, :224].contiguous()
parcels = {"float32, 224²": crops.float(), "uint8, 256²": images, "uint8, 224²": crops}
bus_ms = {name: copy_ms(gpu, parcel) for name, parcel in parcels.items()}
bars({f"ms for 64 photographs over the bus, pinned, {gpu.name}": bus_ms})

# %%
cu.reveal("08b", bus_ms["float32, 224²"] / bus_ms["uint8, 256²"])

# %% [markdown]
# In uint8, crops of the same size take a quarter of the time of float32. Whole frames take a third, because part of what they carry is thrown away later.
# A crop of fixed size is only a slice and costs the worker nothing, so the cheapest parcel is the last one.
#
# ### Exercise 8.1 · 10 min · ●●○
#
# The function below runs in the workers. Split it: what `in_worker` returns is collated and crosses the bus, and `on_device` gets the
# whole batch. Targets:
#
# - the same values as before, and a quarter of the bytes over the bus,
# - the worker only cuts, and computes nothing,
# - on the device there is no loop over the images, and nothing that the program would have to wait for.


# %%
# %%worker_module all_in_the_worker
import torch

from course_exercises.nb08.problem import MEAN, STD


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
# `torch.where(condition, a, b)` chooses, and `flips.view(-1, 1, 1, 1)` makes one condition per image. `images[flips]` would
# choose too, but then the program has to wait for the device to learn how many there are.
#
# </details>
# <details><summary>Hint 3: MEAN and STD are in host memory</summary>
#
# `MEAN.to(images.device, non_blocking=True)` brings one along. Without `non_blocking` the program waits in each step until the device has
# done all that came before. On other devices than CUDA, leave `non_blocking` out, because the copy may then contain wrong values. (A
# training keeps such constants on the device for good.)
#
# </details>


# %%
# %%worker_module my_split
import torch

from course_exercises.nb08.problem import MEAN, STD


def in_worker(image: torch.Tensor, top: int, left: int) -> torch.Tensor:
    """Return what crosses the bus; image is uint8 (3, 256, 256)."""
    return image[:, top : top + 224, left : left + 224]  ### SOLUTION


def on_device(images: torch.Tensor, flips: torch.Tensor) -> torch.Tensor:
    """Return float32 of (batch, 3, 224, 224); flips is bool (batch,)."""
    ### BEGIN SOLUTION
    mean, std = (constant.to(images.device, non_blocking=True) for constant in (MEAN, STD))
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
# - **08a** Around 20, which is right by arithmetic; most machines show more. Ask why: workers and
#   loop share the cores and the memory.
# - **08b** Some say 4; ask which pixels the fourth quarter was. It is about 3, since whole frames
#   carry what is thrown away later.
#
# **Goes wrong.**
#
# - In 8.1 many normalise in the worker out of habit, and some send the whole frame. Ask what crosses
#   the bus, in bytes.

# %% [markdown]
# ## One set of random numbers for all
#
# The transforms of torchvision take batches, too. So why not write `v2.RandomResizedCrop(224)(batch)` on the device? Here is
# a batch of 64 copies of one photograph.

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
# One. The transform draws once per *call*, and a batch is one call. There is no error and no warning: all images of a batch just share one
# window, and with `ColorJitter` one brightness. That is right for a video, whose frames belong together. In a
# batch each sample needs random numbers of its own, as [Kornia](https://kornia.readthedocs.io) and `Augment` draw them: a **tensor** of offsets, not a number. Exercise 8.3 builds that.
#
# ## When it makes training slower
#
# What the GPU augments takes time of the GPU. Let L be the time to load a batch on one core without augmentation, C the step, A the
# augmentation on the device, and W the number of workers, each with a core of its own. A step of the loop then takes
#
# - with the augmentation in the workers: **T = max(C, (L + augmentation) / W)**
# - on the device: **T = max(C + A, L / W)**
#
# Now a larger model. Its step takes twice as long as the workers need for a batch. (Here the GPU is emulated on every machine,
# since we choose how long it augments. A program that waits for a real one keeps a core busy with waiting, so count one core less for the workers.)

# %%
cu.predict(
    "08d",
    "The workers keep up. The augmentation moves to the device, where it takes a quarter of a "
    "step. How many times as long as before does a step take?",
    unit="times",
)

# %%
from functools import partial

chosen = cu.get_accelerator(emulate=True)
workers_ms = pace_ms(starved)  # what the workers need for a batch, augmented
parts = 0.25, 0.75  # A / C


def runs(c):
    """Return C, and a trace with the workers augmenting, then one with the device for each A."""
    device = [{"augment": augment, "augment_ms": part * c} for part in parts]
    jobs = [(augmenting, {}), *((decoding, work) for work in device)]
    train = partial(train_epoch, chosen, step_ms=c)
    return c, [steady(partial(train, loader, **work)) for loader, work in jobs]


# %%
trained = {"the GPU starves": runs(workers_ms / 3)}

# %%
trained["the GPU is the bottleneck"] = runs(2 * workers_ms)
places(trained, parts)

# %%
_, (workers, device, *_) = trained["the GPU is the bottleneck"]
cu.reveal("08d", pace_ms(device) / pace_ms(workers))

# %% [markdown]
# On the left the workers are the bottleneck, and everything below the blue line is a gain. On the right they are not, and all that moves to
# the GPU is paid for in full. "Move everything to the GPU" helps a GPU that waits, and slows down one that is busy.
#
# The augmentation takes device memory, too: a copy of the batch, and what it computes in between. Where the model fills the memory, that
# decides.
#
# ### Exercise 8.2 · 5 min · ●○○
#
# Where should a job augment, and how long does a step take then? There are always as many workers as cores. Target: the smaller T
# of the places where the augmentation fits into memory. The check tries these three jobs and hundreds more.

# %%
from course_exercises.nb08.problem import JOBS, AugmentJob

print(" " * 15, *(f"{name:>12}" for name in JOBS))
for field in AugmentJob.__dataclass_fields__:
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
def where_to_augment(job: AugmentJob) -> tuple[str, float]:
    """Return "CPU" or "GPU", and the ms of a step there."""
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
# - **08c** Whoever has used v2 says 64. It is 1.
# - **08d** Many say 1, "the GPU is so fast". It is 1.25: what moves to a busy GPU is paid for in
#   full.
#
# **Goes wrong.**
#
# - On a machine that is busy otherwise the left panel shows measured points above the lines, since
#   the workers share their cores. If no two of three runs agree, the cell says so: run it again.
# - In 8.2 the memory is forgotten, or the smaller time is chosen where it does not fit.

# %% [markdown]
# ## You now can
#
# - keep in the workers what makes the parcel small, and send uint8 over the bus,
# - augment a batch on the device without a loop over its images,
# - spot an augmentation that draws once for the whole batch,
# - predict when augmenting on the GPU helps, and when it slows training down.
#
# Next: [notebook 09](09_prefetch_to_cuda.ipynb) copies the next batch while the GPU computes.

# %% [markdown]
# # Extra
#
# The core ends here. No later notebook's core needs what follows, and each section only the core.

# %% [markdown]
# ## A window of its own for each sample
#
# ### Exercise 8.3 · 20 min · ●●●
#
# Cut a window of `size` by `size` pixels out of each image of a batch, at a place of its own. Targets:
#
# - uint8 in, uint8 out, and all places possible,
# - the same windows again for the same state of the generator,
# - as many torch operations for a large batch as for a small one.
#
# In the images of the check, each pixel says where it came from.
#
# <details><summary>Hint 1: offsets</summary>
#
# `torch.randint(low, high, shape, generator=generator)` leaves out `high`. A window as large as the image has one
# place.
#
# </details>
# <details><summary>Hint 2, after five minutes: all windows at once</summary>
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
    place, there = (batch, 1, 1, 1), {"device": images.device, "non_blocking": True}
    top = torch.randint(height - size + 1, place, generator=generator).to(**there)
    left = torch.randint(width - size + 1, place, generator=generator).to(**there)
    window = torch.arange(size, device=images.device)
    samples = torch.arange(batch, device=images.device).view(place)
    colours = torch.arange(channels, device=images.device).view(-1, 1, 1)
    return images[samples, colours, top + window.view(-1, 1), left + window]
    ### END SOLUTION


# %%
cu.check("08.3", random_crops)

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **08e** 2 to 10, "batches are faster". On a CPU the batch is slower: it leaves the processor's
#   cache.
# - **08f** 2, "as many as there are cores". It is several times that: ask what was done before that
#   nobody needed.
#
# **Goes wrong.**
#
# - In 8.3 the loop comes first, then one offset for all. Ask for the number of operations, and for
#   the number of different windows.
#
# **Extra.** Homework: 8.3, a batch at a time on the CPU, the climb, libraries. If ten minutes are left,
# climb together: before each rung, ask what the loader will no longer do.

# %% [markdown]
# ## A batch at a time
#
# `Augment` works on whole batches, and torchvision in a worker on one photograph after the other. Is a batch faster on the
# *CPU*, too? Here are 64 photographs, one core and no workers.

# %%
cu.predict(
    "08e",
    "On the CPU: how many times as fast as torchvision, one at a time, is the batch of 64?",
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
from course_stories.operations import count_operations

operations = {name: count_operations(way)[0].calls for name, way in ways.items()}
bars({"ms on one core of this CPU": cpu_ms, "operations of torch": operations})

# %%
cu.reveal("08e", cpu_ms["torchvision, one at a time"] / cpu_ms["Augment, one batch"])

# %% [markdown]
# The batch is *slower* here. One reason is `Augment`, which is slow on a CPU one at a time, too: it multiplies whole images
# with matrices in float32, where torchvision stays in uint8 to the end and touches only the pixels of the window. That is
# the kind of work that a GPU is made for. The other is the batch: between two operations one photograph stays in the
# processor's cache, while 64 of them go to memory and back.
#
# On a GPU the right panel counts. An operation is a **launch** or more, and each launch costs the host some microseconds, however
# little there is to do. One at a time, every photograph has launches of its own; in one batch their number does not
# grow with its size. So augment one at a time in workers, and a batch at a time on the device.

# %% [markdown]
# ## The climb to a fast image loader
#
# All of this notebook's photographs are still loaded as most people begin: a file each, decoded whole by PIL, then a chain of
# transforms. How fast can a CPU do the same, a random crop and flip for each photograph? We climb, as in notebook 06.

# %%
cu.predict(
    "08f",
    "How many times as many photographs a second as one process with ImageFolder can all cores "
    "of this machine load?",
    unit="times",
)

# %%
import time

ladder = {}


def climb(name, loader):
    """Load an epoch, then others for a second; keep the fastest, as other programs only slow it."""
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
# The next rung changes four things at once:
#
# - All JPEGs lie in one file, with an index.
# - While packing, each JPEG was given *restart markers*, so that a crop can be decoded without the rest.
# - What is decoded goes into memory that was used before, since each page of new memory has to be cleared first.
# - torch resizes, flips and normalises a photograph at once, while it is still in the processor's cache.

# %%
import tempfile
from pathlib import Path

from keepfed.loaders.images import ImageLoader, pack_images

room = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
packed = Path(room.name, "train.images")
print(f"packed into {pack_images(packed, folder):,} bytes")
climb("one file, one thread", ImageLoader(packed, 50, threads=1))

# %% [markdown]
# The codec and torch let go of Python's lock while they work. So **threads** are enough to use all cores, and no batch has to
# be sent from one process to another. And if the device normalises, uint8 leaves the host less to write.

# %%
climb("a thread for each core", ImageLoader(packed, 50))
climb("uint8", ImageLoader(packed, 50, dtype="uint8"))

# %%
from course_stories.figures import bars as rungs

faster = {name: rate / ladder["ImageFolder"] for name, rate in ladder.items()}
rungs(faster, "times as many photographs/s as ImageFolder", "{:.1f}".format)

# %%
cu.reveal("08f", faster["uint8"])

# %% [markdown]
# Is it still the same? Each draw depends on the seed, the epoch and the photograph alone, so torchvision can be given the same ones.

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
# Photographs that become smaller by two or more are decoded smaller in the first place: the codec leaves out the fine parts of each
# block of 8 × 8 pixels. That changes a pixel by about one level of 255. <!-- given --> Read it:
# `keepfed/loaders/images/decoding.py` cuts and decodes, `restarts.py` beside it makes that possible. Appendix B holds the loader against those of other libraries.
#
# With `antialias=False` OpenCV resizes, as it does in most fast loaders: each new pixel mixes only the four that are nearest to it,
# which is quicker. `make peers` measures both ways beside the other libraries.
#
# To validate, `ImageLoader(packed, shuffle=False, crops=CentreCrop(resize=256))` goes through the file in its order, and gives what
# `Resize` and `CenterCrop` of torchvision give.
#
# ## Which library does what
#
# | | [torchvision v2](https://docs.pytorch.org/vision/stable/transforms.html) | [Kornia](https://kornia.readthedocs.io) | [DALI](https://docs.nvidia.com/deeplearning/dali/) |
# |---|---|---|---|
# | works on | a sample, or a batch with one set of parameters | a batch, a set for each sample | a batch, a set for each sample |
# | runs on | CPU, CUDA | CPU, CUDA | CPU, CUDA |
# | decodes JPEG | yes | with kornia-rs, which comes with it | yes, also partly on the GPU |
# | place in the loop | `Dataset`, in workers | after the copy, like a model | in place of `DataLoader`, or behind it through its proxy |
# | needs | nothing | nothing | Linux; CUDA for its GPU part |
#
# What DALI takes off the CPU, and what not, is told in appendix B.
