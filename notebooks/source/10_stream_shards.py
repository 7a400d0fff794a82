# %% [markdown]
# # 10 · Stream shards with WebDataset
#
# **You will do:** put 2,000 files into 20, stream them over HTTP, and repair what two lectures say about it.
#
# **You will learn**
#
# - what a shard saves on a storage far away, and what it does not,
# - where overlap comes from when data are streamed,
# - to notice when a connection breaks, instead of training on less,
# - what `resampled`, `shardshuffle`, splitters and caches really do.
#
# **You need:** notebooks 05 and 06. A CPU is enough. **Minutes:** {minutes}.

# %%
import course_utils as cu

cu.ready("10")

# %% [markdown] tags=["instructor"]
# **Instructor: plan.** Why shards (4), streaming (6), connections (4), snippets and 10.1 (4 + 10), draws and orders (4),
# 10.2 (4), 10.3 (6), other libraries (3). Short of time: 10.2, Hugging Face and tf.data.
#
# **Board.** A worker as a pipe with one tap: wait, pour, decode, wait. Draw four below each other, shifted. Ask
# where the GPU waits, and what a buffer behind the taps would change.

# %% [markdown]
# ## Why shards
#
# An object store such as S3 has no folders and no blocks. You ask over HTTP for an object, or for a range of its bytes,
# and wait a tenth of a second for the first of them. With a file for each event you wait that long for each event. A **shard** is a
# tar file with many samples, read from its beginning to its end.

# %%
import tempfile
from pathlib import Path

from course_utils.loading.shards import event_samples, write_shards

events = cu.data_path("events", "S")  # the small set: 2,000 events
room = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
shards = Path(room.name) / "shards"
paths = write_shards(event_samples(events, seed=1), shards, per_shard=100)
print(f"{len(paths)} shards of {paths[0].stat().st_size / 1e3:.0f} kB")

# %%
import tarfile

with tarfile.open(paths[0]) as tar:
    for member in tar.getmembers()[:4]:
        print(f"{member.name:24} {member.size:7,} bytes")

# %% [markdown]
# (`write_shards` is ours, and leaves a list with sizes and checksums. WebDataset itself has `TarWriter` for one shard, and
# `ShardWriter`, which begins a new one when one is full.)
#
# Files whose names agree up to the first dot are one **sample**; what follows is the name of the field. They must lie side by
# side, since nobody looks back. The events were shuffled once, when they were written: a stream can mix neighbours
# only (notebook 05).

# %%
cu.predict(
    "10a",
    "2,000 events from an emulated S3, one request after the other: how many times longer does a "
    "file for each take than 20 shards?",
    unit="times",
)

# %%
from course_utils.hardware.storage import VirtualClock
from course_utils.loading.events import NpzEvents
from course_utils.loading.shards import decode_event, stream_shards


def seconds(folder, name, read):
    storage = cu.slow_storage(folder, "S3")
    clock = VirtualClock(storage)  # adds up what we would have waited
    start, count = clock(), sum(1 for _ in read(storage))
    print(f"{name}: {count:,} events, {storage.counters()}")
    return (clock() - start) / 1e9


def from_files(fs):
    files = NpzEvents(events, fs=fs)
    return (files[index] for index in range(len(files)))


# %%
epochs = {
    "a file each": seconds(events, "files", from_files),
    "20 shards": seconds(
        shards, "shards", lambda fs: stream_shards(shards, fs=fs, decode=decode_event)
    ),
}

# %%
import matplotlib.pyplot as plt

plt.style.use("course_utils.plots")  # readable on light and on dark pages
figure, panel = plt.subplots(figsize=(7, 1.4), layout="constrained")
bars = panel.barh(list(epochs), list(epochs.values()))
panel.bar_label(bars, fmt="%.3g s", padding=3, color=plt.rcParams["text.color"])
panel.set(xscale="log", xlim=(1, 1500), xlabel="seconds for an epoch, emulated S3 (log)")
panel.invert_yaxis()
plt.close()  # the next line shows the figure; without this it would be shown twice
figure

# %%
cu.reveal("10a", epochs["a file each"] / epochs["20 shards"])

# %% [markdown]
# A hundred times fewer requests, and that is all there is to it. The price: no event can be asked for by its number, and
# a shuffle is an order of shards and a buffer. And tar is a container, no codec: JPEGs in a tar take as long to
# decode as JPEGs in files (notebook 06).
#
# ## Streaming
#
# A lecture: *streaming removes disk entirely, pulling data at network speed.* It removes nothing: the network is the storage
# now, with its latency and its bandwidth. And: *as one shard is consumed, the next is already downloading.* Is it?
#
# `object_store` starts a server on this machine: real HTTP, real connections, and the latency and bandwidth of the
# emulated S3. The GPU takes 30 ms for a batch, and the workers have been started before. <!-- given -->

# %%
cu.predict("10b", "One worker streams. What share of the time is the GPU idle?", unit="%")

# %%
from torch.utils.data import DataLoader

from course_utils.hardware.object_store import object_store
from course_utils.loading.events import pad_collate
from course_utils.measure.picture import Timeline

gpu = cu.get_accelerator(step_ms=30)


# %%
def train(workers):
    with object_store(shards, "S3") as store:
        stream = stream_shards(store.url, headers=store.headers, decode=decode_event, buffer=100)
        options = {"collate_fn": pad_collate, "persistent_workers": True}
        loader = DataLoader(stream, 64, num_workers=workers, **options)
        for _ in range(2):  # in the first epoch the workers start; the second one counts
            with cu.record() as trace:
                trace.mention("emulated S3")
                for batch in trace.batches(loader, ids="event_id"):
                    gpu.step(gpu.upload(batch)).item()
    return trace


# %%
one = train(workers=1)
one.timeline()

# %%
cu.reveal("10b", 100 * one.summary().idle)

# %% [markdown]
# Look at the worker: it waits for a shard, decodes it, and *then* asks for the next. Nothing is downloading behind its back.

# %%
cu.predict("10c", "And with four workers?", unit="%")

# %%
four = train(workers=4)
Timeline({"one worker": one, "four workers": four})

# %%
cu.reveal("10c", 100 * four.summary().idle)

# %% [markdown]
# Four workers have four streams; while one waits, others decode. Waiting takes no core, so more workers than cores may
# pay. Part of what is left is the wait for the first batches, at the left end of the picture; in a long epoch it hardly counts.
#
# The storage is one argument, nothing else changes:
#
# ```python
# stream_shards("shards", fs=cu.slow_storage("shards", "busy Lustre"))       # emulated
# stream_shards("s3://bucket/shards", fs=fsspec.filesystem("s3", profile="me"))  # needs s3fs
# ```
#
# Both lectures give WebDataset itself an `s3://` address:

# %%
import warnings

import webdataset as wds

try:
    next(iter(wds.WebDataset("s3://bucket/shard-{000000..000019}.tar", shardshuffle=False)))
except ValueError as error:
    print(error)

# %% [markdown]
# It has no client for S3. `"pipe:aws s3 cp s3://bucket/... -"` works where that program is installed, and a signed `https://`
# address where `curl` is.
#
# ## A connection breaks
#
# On a large machine, over days, some do. We let every shard break off once, and give WebDataset the handler of many
# recipes. There are 400 events. <!-- given -->

# %%
cu.predict(
    "10d",
    "Four shards, each breaks off once, after 200 kB. WebDataset is told to warn and to go on: how "
    "many of the 400 events does the epoch have?",
    unit="events",
)

# %%
import shutil
from urllib.request import urlopen

from webdataset import gopen

if not shutil.which("curl"):  # which WebDataset calls for http://
    gopen.gopen_schemes["http"] = lambda url, mode, bufsize: urlopen(url)


def served(samples):
    with warnings.catch_warnings(record=True):  # it warns once or twice for each shard
        warnings.simplefilter("always")
        return sum(1 for _ in samples)


with object_store(shards, "S3", break_after=200_000) as store:
    urls = [store.url_of(path.name) for path in paths[:4]]
    theirs = wds.WebDataset(urls, shardshuffle=False, handler=wds.warn_and_continue)
    left = served(theirs)

# %%
cu.reveal("10d", left)

# %% [markdown]
# The rest is gone, and nobody counts: a warning in a log that nobody reads, and a model that saw less. And it gets
# worse: a file that was cut off *between* two samples is a good tar file for Python, which ends there without any error.
#
# So a reader has to know how long a shard is. `write_shards` leaves a list, with sizes and checksums; ours asks again from
# the byte where it broke.

# %%
with object_store(shards, "S3", break_after=200_000) as store:
    some = [f"{store.url}/{path.name}" for path in paths[:4]]
    print("events:", served(stream_shards(some, headers=store.headers)))
    print(store.counters())

# %% [markdown]
# And if the server dies for good, there is an error:

# %%
with object_store(shards, None) as store:
    samples = iter(stream_shards(store.url, headers=store.headers, buffer=1))
    next(samples)
    store.kill()
    try:
        served(samples)
    except ConnectionError as error:
        print(str(error).replace(store.url, "http://..."))
    store.restart()
    print("events after a restart:", served(stream_shards(store.url, headers=store.headers)))

# %% [markdown]
# ## Six snippets
#
# Here is what two lectures print and what is often advised, cut into six, each with something wrong. Read them first.

# %%
from torch.utils.data import DataLoader
from torchvision import transforms as T


def labels(urls):  # batches of 16 labels
    data = wds.WebDataset(urls, shardshuffle=False).decode().to_tuple("cls").batched(16)
    return DataLoader(data)


def images(urls):  # batches of images and labels
    data = wds.WebDataset(urls, shardshuffle=False).decode("torchrgb").to_tuple("jpg", "cls")
    return data.map_tuple(T.ToTensor(), int).batched(16)


def epoch(urls):  # the keys of an epoch, in another order each time
    return wds.WebDataset(urls, resampled=True, shardshuffle=False).to_tuple("__key__")


# %%
def mixed(urls, decode):  # decoded samples, mixed
    return wds.WebDataset(urls, shardshuffle=100).map(decode).shuffle(1000)


def cached(urls, folder):  # all samples; the shards are kept in a folder
    return wds.WebDataset(urls, shardshuffle=False, cache_dir=folder)


def complete(urls):  # all samples, or an error
    return wds.WebDataset(urls, shardshuffle=False, handler=wds.warn_and_continue)


# %%
cu.predict(
    "10e",
    "How many of the six end with an error when they are asked for a batch?",
    unit="snippets",
)

# %%
from course_utils.loading.shards import image_samples, url_of

pictures = Path(tempfile.mkdtemp(dir=room.name))
write_shards(image_samples(cu.data_path("images", "S"), seed=1), pictures, per_shard=20)
urls = [url_of(path) for path in sorted(pictures.glob("*.tar"))]
decoded = []


def decode(sample):
    decoded.append(sample["__key__"])
    return sample


# %%
errors, more = 0, {"mixed": [decode], "cached": [f"{room.name}/cache"]}
for make in labels, images, epoch, mixed, cached, complete:
    try:
        first = next(iter(make(urls, *more.get(make.__name__, []))))
        first = list(first) if isinstance(first, dict) else getattr(first[0], "shape", first)
    except (TypeError, ValueError) as error:
        first, errors = f"{type(error).__name__}: {error}", errors + 1
    print(f"{make.__name__:9} {first}")
print(f"mixed decoded {len(decoded)} samples before it gave the first")

# %%
cu.reveal("10e", errors)

# %% [markdown]
# Two say so. The others are worse, since they run:
#
# - `labels`: the pipeline makes batches, and `DataLoader` makes batches of these, of one each.
# - `epoch`: `resampled` draws shards *with replacement*, for ever. There is no epoch.
# - `mixed`: the buffer holds decoded images. Small ones here; the lecture keeps 10,000 of three times 224 by 224 floats:

# %%
buffer = 3 * 224 * 224 * 4 * 10_000
print(f"{buffer / 1e9:.0f} GB in each worker, {8 * buffer / 1e9:.0f} GB in eight")

# %% [markdown]
# - `cached`: with the folder there it runs, and never removes a shard from it (`cache_size=-1`).
# - `complete` you have seen.
#
# How many shards do an epoch's worth of draws meet? And is the order new in each epoch, if we ask for a shuffle instead?

# %%
cu.predict("10f", "20 draws out of 20 shards: how many different ones, on average?", unit="shards")

# %%
cu.predict("10g", "shardshuffle=100, five epochs: how many different orders?", unit="different")

# %%
from itertools import islice

import numpy as np

names = [path.name for path in paths]
met = [len({draw["url"] for draw in islice(wds.ResampledShards(names), 20)}) for _ in range(500)]
cu.reveal("10f", float(np.mean(met)))

# %%
pipeline = wds.WebDataset(urls, shardshuffle=100)
orders = {tuple(dict.fromkeys(sample["__url__"] for sample in pipeline)) for _ in range(5)}
cu.reveal("10g", len(orders))

# %% [markdown]
# A third of the data is not seen, a quarter twice or more. That may be fine for a model that trains for long, if you know it:
# say `.with_epoch(n)`, and call it draws. `split_by_node` does not make ranks disjoint here: each worker of each rank draws by itself.
#
# And the shuffle: its seed is drawn once, when the pipeline is made. `detshuffle=True` counts epochs, as long as
# the workers are persistent.
#
# ### Exercise 10.1 · 10 min · ●●○
#
# Repair the six, up there in their cells; a line or two each. Target: `labels` gives batches of 16 labels, `images` float
# tensors of one size, `epoch` every key once and in a new order, `mixed` decodes one sample to serve one, `cached` makes
# its folder and limits it, `complete` raises.
#
# <details><summary>Hint 1: batches</summary>
#
# `DataLoader(..., batch_size=None)` takes what comes. Photographs differ in size: `T.Compose([T.Resize((32, 32)),
# T.ToTensor()])`, and PIL images for it.
#
# </details>
# <details><summary>Hint 2: order</summary>
#
# `.shuffle` works on whatever flows past it: also on undecoded bytes. For `epoch`, reread what is said above about
# `detshuffle`.
#
# </details>
# <details><summary>Hint 3: folder and errors</summary>
#
# `os.makedirs(folder, exist_ok=True)`, and `cache_size` in bytes. The default handler raises.
#
# </details>

# %% tags=["solution"]
import os

small = T.Compose([T.Resize((32, 32)), T.ToTensor()])


def labels(urls):
    data = wds.WebDataset(urls, shardshuffle=False).decode().to_tuple("cls").batched(16)
    return DataLoader(data, batch_size=None)


def images(urls):
    data = wds.WebDataset(urls, shardshuffle=False).decode("pil").to_tuple("jpg", "cls")
    return data.map_tuple(small, int).batched(16)


def epoch(urls):
    return wds.WebDataset(urls, shardshuffle=100, detshuffle=True).to_tuple("__key__")


# %% tags=["solution"]
def mixed(urls, decode):
    return wds.WebDataset(urls, shardshuffle=100).shuffle(1000).map(decode)


def cached(urls, folder):
    os.makedirs(folder, exist_ok=True)
    return wds.WebDataset(urls, shardshuffle=False, cache_dir=folder, cache_size=10**10)


def complete(urls):
    return wds.WebDataset(urls, shardshuffle=False)


# %%
cu.check("10.1", labels, images, epoch, mixed, cached, complete)

# %% [markdown] tags=["instructor"]
# **Instructor.** 10a: most say 20 to 50. 10b and 10c: who read the lecture says that one worker is enough. 10d: most
# say 400 or 0. 10e: the room says five or six; four run, that is the point. 10f: 20, by those who overlook *with
# replacement*. 10g: nearly all say five; let them run the cell twice.
#
# In exercise 10.1 nobody misses `labels`; `cached` is half repaired by most (no limit), and `epoch` is given `with_epoch`.

# %% [markdown]
# ## How many shards?
#
# Shards are dealt out whole: to ranks, then to the workers of each. Who has one more reads longer, and the others wait; who
# has none ends with an error in WebDataset. Small shards cost a request each; large ones mix badly, and are read again
# from the start when a job breaks off.
#
# ### Exercise 10.2 · 4 min · ●○○
#
# `choose_shards` returns a number of shards so that every worker of every rank gets the same number, at least one, of
# 64 MB to 1,000 MB each; where the data are too small for that, as few as possible. Without workers a rank reads by <!-- given -->
# itself.

# %%
from notebooks.exercises.nb10.problem import SHOWN

for name, case in SHOWN.items():
    print(f"{name:9}  {case}: {case.mb:,.0f} MB")

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# How many read at once? The answer is a multiple of that.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Aim in the middle, at 256 MB: how many of these does each reader get? Round, and take at least one. <!-- given -->
#
# </details>


# %%
def choose_shards(samples: int, sample_mb: float, workers: int, ranks: int) -> int:
    """Return into how many shards to write `samples` for `workers` on each of `ranks`."""
    ### BEGIN SOLUTION
    places = max(1, workers) * ranks
    each = round(samples * sample_mb / places / 256)
    return places * max(1, each)
    ### END SOLUTION


# %%
cu.check("10.2", choose_shards)

# %% [markdown]
# ## Every sample once
#
# WebDataset divides the shards among workers by itself. Among ranks it does not: where torchrun has set `RANK`, it stops
# with an error until you choose a `nodesplitter`. `wds.split_by_node` asks `RANK`, or else `torch.distributed`. But a
# worker that was not forked is in no process group: without the variable it takes itself for the only one, and
# every rank reads everything. So decide in the main process, and send the answer along.
#
# ### Exercise 10.3 · 6 min · ●●○
#
# `make_stream` returns a pipeline of samples for one rank in one epoch. Target: all ranks and workers together serve every sample
# exactly once, a shard is read in one place only, a worker without a shard is no error, and the order of the shards is
# new in each epoch; under torchrun, too.
#
# <details><summary>Hint 1: one order for all</summary>
#
# If every rank shuffles for itself, their shares overlap. `np.random.default_rng(epoch)` gives the same numbers everywhere.
#
# </details>
# <details><summary>Hint 2: what WebDataset should not do</summary>
#
# Hand it the shards of the rank only, and switch its own rules off: `shardshuffle=False, nodesplitter=None,
# empty_check=False`.
#
# </details>


# %%
# %%worker_module my_stream
import numpy as np
import webdataset as wds


def make_stream(urls: list[str], epoch: int, rank: int, world_size: int) -> wds.WebDataset:
    ### BEGIN SOLUTION
    order = np.random.default_rng(epoch).permutation(urls).tolist()  # the same on all ranks
    mine = order[rank::world_size]
    data = wds.WebDataset(mine, shardshuffle=False, nodesplitter=None, empty_check=False)
    return data.shuffle(100)
    ### END SOLUTION


# %%
cu.check("10.3", make_stream)

# %% [markdown]
# Ours, `stream_shards`, keeps these rules. Neither can go on in the middle of an epoch after a restart: a lecture says
# that WebDataset does, its author says that it cannot.
#
# ## The same shards, other readers
#
# Hugging Face `datasets` streams Parquet, JSON and also our tar files.

# %%
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # else it asks its hub about every data set
from datasets import disable_progress_bars, load_dataset
from datasets.distributed import split_dataset_by_node

disable_progress_bars()

files = [str(path) for path in paths]
stream = load_dataset(
    "webdataset", data_files=files, split="train", streaming=True, cache_dir=f"{room.name}/hf"
)
mixed_stream = stream.shuffle(seed=0, buffer_size=200)
for number in 0, 1:
    mixed_stream.set_epoch(number)
    print(f"epoch {number}:", [sample["__key__"] for sample in islice(mixed_stream, 3)])

# %%
cu.predict("10h", "20 shards, three ranks: how many shards does one rank read?", unit="shards")

# %%
third = split_dataset_by_node(stream, rank=0, world_size=3)
origins = {sample["__url__"] for sample in third}
print(f"{sum(1 for _ in third)} events of rank 0, from {len(origins)} shards")
cu.reveal("10h", len(origins))

# %% [markdown]
# All of them: if the shards do not divide evenly, each rank reads everything and keeps every third sample. Every event is
# served once, and the storage is asked for three times as much. With 21 shards it would be seven each. `set_epoch` gives the
# buffer and the shards a new order.
#
# A lecture prints a block for `datasets` that fails three times over, and one for **tf.data**. What cannot run here is
# shown with the reason; unfold the code.

# %%
from notebooks.stories.snippets import compare_snippets, numbered_shards

numbered = numbered_shards(tempfile.mkdtemp(dir=room.name))
compare_snippets(numbered, "script", "columns", "padding", "tf_data")

# %% [markdown]
# Where do the others fit?
#
# | Library | What it is | Look at it when |
# |---|---|---|
# | WebDataset | tar files, read in order | samples are large, and lie far away |
# | HF datasets | Arrow and Parquet, by index or as a stream | text, tables, what is on their hub |
# | MosaicML Streaming | shards of its own (MDS), random access, a local cache | you need the same order on any number of GPUs, and to resume |
# | LitData | chunks of its own, or raw files | you work with Lightning, or on files as they are |
# | grain | Python, made for JAX | every run must be reproducible |
# | DALI | decodes and augments, on the GPU too | the CPU is the bottleneck, and the GPU has time left |
# | SPDL | a pipeline of threads | the code releases the GIL |
# | FFCV | one file of its own, compiled pipelines | images on a local disk |
# | DLIO | no loader: it imitates the I/O of a training | you choose a storage |
#
# Benchmarks of vendors are theirs. One is worth reading twice: LitData streams about 6,400 raw images/s from S3, and 3,200 with
# a transform. The transform halves it: the network was not the limit. And libraries that stream are built for large
# samples; with small events we measured WebDataset hundreds of times slower than the record loader of notebook 06.

# %% [markdown] tags=["instructor"]
# **Instructor.** 10.8: who says 7 has thought well; it is what one would want. In exercise 10.2 the misconception is the size alone; in
# 10.3 it is `split_by_node`, which works in the main process, and so in every small test.
#
# What goes wrong: a proxy that also catches 127.0.0.1. `NO_PROXY=127.0.0.1` helps. The server of an interrupted cell ends with its
# `with`.

# %% [markdown]
# ## You now can
#
# - say what a shard saves, and count it,
# - stream over HTTP or S3, and find the number of workers that hides the latency,
# - notice a broken connection instead of training on less,
# - write pipelines that mix before they decode, and serve every sample once,
# - choose the number of shards for all who will read them.
#
# Next: many GPUs, and how to survive a restart.
