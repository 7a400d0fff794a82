# %% [markdown]
# # 10 · Stream shards with WebDataset
#
# {here: read}
#
# **You will do:** put 2,000 files into 20, stream them over HTTP, and repair three pipelines that look right.
#
# **You will learn:**
#
# - what a shard saves, what it costs, and when to stop streaming; <!-- 10a -->
# - which part of a stream overlaps with training; <!-- 10b 10c -->
# - to notice a broken connection instead of training on less data; <!-- 10d -->
# - what `resampled`, `shardshuffle` and shuffle buffers really do; <!-- 10e 10f 10.1 -->
# - how many shards to write. <!-- 10.2 -->
#
# **You need:** notebooks 05 and 06. A CPU is enough.
#
# **Minutes:** {minutes}.

# %%
import course_utils as cu

cu.ready("10")

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Script.**
#
# - *8 min* **Why shards.** Open one tar file on the wall and read the names. Then prediction 10a.
# - *6 min* **Streaming.** Predictions 10b and 10c: one worker, then four.
# - *4 min* **A connection breaks.** Prediction 10d. Read aloud the warning that usually nobody sees.
# - *22 min* **Draws and orders.** Predictions 10e and 10f, then exercise 10.1.
# - *10 min* **How many shards?** Exercise 10.2.
#
# **Leave out.** Exercise 10.2. Name one reason for few shards and one for many.
#
# **Board.** Draw a worker as a pipe with one tap: wait, pour, decode, wait. Draw four of them, one above the other and
# shifted in time. Where does the GPU wait, and what would a buffer behind the taps change?

# %% [markdown]
# ## Why shards
#
# Your data are in an object store such as
# [Amazon S3](https://docs.aws.amazon.com/AmazonS3/latest/userguide/optimizing-performance.html). It has no folders and
# no blocks. You request an object over HTTP, or a range of its bytes, and wait a tenth of a second for the first of
# them. With one file per event, you wait that long for every event. So let's put many samples into one tar file, which
# a program reads from the beginning to the end, and call it a **shard**.

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
# Files whose names agree up to the first dot form one **sample**, and the rest of the name is the name of the field.
# They must follow each other, because a reader never goes back. And since a stream can mix only neighbors (notebook
# 05), `write_shards` shuffles the events once, while it writes them. It also writes a list of the shards, with sizes
# and checksums. The function belongs to this course and accepts images from `image_samples`, too.
# [WebDataset](https://github.com/webdataset/webdataset) itself has `ShardWriter`.
#
# How much does that gain? One process reads all 2,000 events from an emulated S3, one request after the other, first
# from files and then from shards. And in epoch 2 it wants the same events again, in another order. Should it stream
# them again, or have kept a copy?

# %%
cu.predict(
    "10a",
    "Epoch 2 streams the 20 shards from S3 again. How many times as long does it take as from a "
    "copy on the SSD of a laptop?",
    unit="times",
)

# %%
from course_utils.hardware.storage import VirtualClock
from course_utils.loading.events import NpzEvents
from course_utils.loading.shards import decode_event, stream_shards


def seconds(folder, read, storage="S3"):
    fs = cu.slow_storage(folder, storage)
    clock = VirtualClock(fs)  # adds up the time that we would have waited
    start, count = clock(), sum(1 for _ in read(fs))
    seen = fs.counters()
    print(f"{count:,} events, {seen.requests:,} requests, {seen.bytes_read / 1e6:.1f} MB")
    return (clock() - start) / 1e9


def from_files(fs):
    files = NpzEvents(events, fs=fs)
    return (files[index] for index in range(len(files)))


def from_shards(fs):
    return stream_shards(shards, fs=fs, decode=decode_event)


# %%
from course_utils.stories.figures import dots

times = {
    "S3, one file per event": seconds(events, from_files),
    "S3, 20 shards": seconds(shards, from_shards),
    "20 shards, local copy": seconds(shards, from_shards, "laptop SSD"),
}
dots(times, "seconds for an epoch, emulated storage", "{:.3g} s".format)

# %%
cu.reveal("10a", times["S3, 20 shards"] / times["20 shards, local copy"])

# %% [markdown]
# Compare the first two dots. The gain is a hundred times fewer requests, and nothing else. You even read more bytes,
# because tar rounds each file up to blocks of 512 bytes. <!-- given --> And shards have a price: you can no longer
# request an event by its index, and you can shuffle only the order of the shards and a buffer. Nor does a tar file
# decode anything. It's a container and not a codec, so JPEGs in a tar take as long to decode as JPEGs in files
# (notebook 06).
#
# With the copy, you hardly wait for anything but decoding. And what does the copy cost? The same requests and bytes as
# one streamed epoch, so it pays as soon as epoch 2. **If you repeat epochs over fixed data, don't stream them. Copy the
# shards once** (notebook 07). Stream what you read only once, what grows while you train, or what fits on none of your
# disks.
#
# ## Streaming
#
# Suppose your data don't fit. You may read that *streaming removes disk entirely, pulling data at network speed.* It
# removes nothing, because the network is the storage system now, with its own latency and bandwidth. You may also read
# that *as one shard is consumed, the next is already downloading.* Is it?
#
# `object_store` starts a server on this machine, with real HTTP, real connections, and the latency and bandwidth of the
# emulated S3. Our GPU takes 30 ms for a batch, and the workers start before we measure. <!-- given -->

# %%
cu.predict("10b", "One worker streams. What share of the time is the GPU idle?", unit="%")

# %%
from torch.utils.data import DataLoader

from course_utils.hardware.object_store import object_store
from course_utils.loading.events import pad_collate
from keepfed.measure.picture import Timeline

gpu = cu.get_accelerator(step_ms=30)


# %%
def train(workers):
    with object_store(shards, "S3") as store:
        stream = stream_shards(store.url, headers=store.headers, decode=decode_event, buffer=100)
        options = {"collate_fn": pad_collate, "persistent_workers": True}
        loader = DataLoader(stream, 64, num_workers=workers, **options)
        for epoch in range(2):  # the workers start in the first epoch, and the second one counts
            stream.set_epoch(epoch)
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
# Look at the worker. It waits for a shard, decodes it, and only *then* requests the next one. Nothing is downloaded in
# the background. WebDataset does the same. What would you try first?

# %%
cu.predict("10c", "Four workers stream. What share of the time is the GPU idle?", unit="%")

# %%
four = train(workers=4)
Timeline({"one worker": one, "four workers": four})

# %%
cu.reveal("10c", 100 * four.summary().idle)

# %% [markdown]
# While one worker waits, the other three decode. Waiting needs no core, so it may even pay to have more workers than
# cores. Most of the remaining idle time is at the start of the picture, where all of them wait for their first shards,
# and in a long epoch that hardly counts.
#
# ## A connection breaks
#
# Train for days on many machines, and some connections will break. Let's break some on purpose. We take four shards
# with 400 events, interrupt the download of each of them once, and give WebDataset the handler of a published recipe.
# <!-- given -->

# %%
cu.predict(
    "10d",
    "The download of each of four shards breaks off once, after 200 kB. WebDataset has a handler "
    "that warns and continues. How many of the 400 events does the epoch have?",
    unit="events",
)

# %%
import shutil
import warnings
from urllib.request import urlopen

import webdataset as wds
from webdataset import gopen

if not shutil.which("curl"):  # WebDataset calls curl for http://
    gopen.gopen_schemes["http"] = lambda url, mode, bufsize: urlopen(url)


def served(samples):
    with warnings.catch_warnings(record=True):  # WebDataset warns once or twice per shard
        warnings.simplefilter("always")
        return sum(1 for _ in samples)


# %%
with object_store(shards, "S3", break_after=200_000) as store:
    urls = [store.url_of(path.name) for path in paths[:4]]
    theirs = wds.WebDataset(urls, shardshuffle=False, handler=wds.warn_and_continue)
    left = served(theirs)
cu.reveal("10d", left)

# %% [markdown]
# The other events are missing, and nobody counts them. All you have is a warning in a log that nobody reads, and a
# model that was trained on less data. Just drop the handler, then? Usually that gives you an error, but not always,
# because a file that was cut off *between* two samples is a good tar file for Python, which ends there without any
# error. The same is true between two files of one sample.
#
# A reader must therefore know how much to expect. Ours takes the number from the list of `write_shards`, and requests
# the rest from the byte where the connection broke:

# %%
with object_store(shards, "S3", break_after=200_000) as store:
    some = [f"{store.url}/{path.name}" for path in paths[:4]]
    print("events:", served(stream_shards(some, headers=store.headers)))
    print(store.counters())

# %% [markdown]
# ## Draws and orders
#
# Every event arrives now, but in which order? Two options of WebDataset promise a new one in each epoch:
# `resampled=True` draws shards, and `shardshuffle=100` shuffles them. What do they really do?

# %%
cu.predict("10e", "20 draws from 20 shards: how many different shards, on average?", unit="shards")

# %%
cu.predict("10f", "shardshuffle=100, five epochs: how many different orders?")

# %%
from itertools import islice

import numpy as np

names = [path.as_posix() for path in paths]
met = [len({draw["url"] for draw in islice(wds.ResampledShards(names), 20)}) for _ in range(500)]
cu.reveal("10e", float(np.mean(met)))

# %%
from course_utils.loading.shards import url_of

files = [url_of(path) for path in paths]
pipeline = wds.WebDataset(files, shardshuffle=100)
orders = {tuple(dict.fromkeys(sample["__url__"] for sample in pipeline)) for _ in range(5)}
cu.reveal("10f", len(orders))

# %% [markdown]
# `resampled` draws *with replacement*, forever. In as many draws as there are shards, a third of the data is not seen,
# a quarter twice or more. For a long training that may be fine, if you know it. Stop after n samples with
# `.with_epoch(n)`, but don't call them an epoch.
#
# `shardshuffle` draws one seed when you create the pipeline, so every epoch has the same order. With `detshuffle=True`
# it counts epochs, as long as the workers are persistent.
#
# One more fact before you repair: `.shuffle(n)` keeps n samples in memory, in the form in which they reach it.
# Undecoded files are small, but decoded images aren't. (Notebook 05 counted what 10,000 of them need in each worker.)
#
# ### Exercise 10.1 · 10 min · ●●○
#
# All three of these pipelines run, but none does what its comment says. Repair each one in the cell below:
#
# - Each pass over `epoch` yields every key once, in a new random order of the shards. With workers, all of them
#   together yield every key once.
# - `mixed` decodes a sample only shortly before it yields it. Its order is new in each pass.
# - `complete` raises an error if fewer than `count` samples arrive, or if a sample lacks a field.
#
# None of them may hide an error or hold all samples in memory. (`complete` runs in one process, because in several
# workers each would count only its own part.)
#
# <details><summary>Hint 1: order</summary>
#
# Read again what `detshuffle` does.
#
# </details>
# <details><summary>Hint 2: buffer</summary>
#
# `.shuffle` takes samples in any form, even undecoded bytes.
#
# </details>
# <details><summary>Hint 3: errors</summary>
#
# The default handler raises an error, but not for a file that ends between two samples or two fields. Make `complete` a
# generator: compare the keys of each sample with the keys of the first, yield it, and count. Check the count at the
# end.
#
# </details>


# %%
def epoch(urls):  # the keys of an epoch, in a new order each time
    return wds.WebDataset(urls, resampled=True, shardshuffle=False).to_tuple("__key__")


def mixed(urls, decode):  # decoded samples, mixed; the buffer holds files
    return wds.WebDataset(urls, shardshuffle=100).map(decode).shuffle(1000)


def complete(urls, count):  # all `count` samples, or an error
    return wds.WebDataset(urls, shardshuffle=False, handler=wds.warn_and_continue)


# %% tags=["solution"]
def epoch(urls):
    return wds.WebDataset(urls, shardshuffle=100, detshuffle=True).to_tuple("__key__")


def mixed(urls, decode):
    return wds.WebDataset(urls, shardshuffle=100).shuffle(1000).map(decode)


def complete(urls, count):
    number, fields = 0, None
    for sample in wds.WebDataset(urls, shardshuffle=False):
        fields = fields or sample.keys()
        if sample.keys() != fields:
            raise EOFError(f"{sample['__key__']} has other fields than the first sample")
        number += 1
        yield sample
    if number != count:
        raise EOFError(f"{number} of {count} samples arrived")


# %%
cu.check("10.1", epoch, mixed, complete)

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **10a** Tempting: 1, because shards are fast, or 100, because an SSD is. It is 10 or so, since decoding remains.
# - **10b** Tempting: 0 to 10, because the next shard is "already downloading". It is most of the time.
# - **10c** Tempting: a quarter of 10b, which is right for a long epoch. In this short one it is more, because the start
#   is most of the rest.
# - **10d** Tempting: 400, or 0. It is in between, and nobody counts.
# - **10e** Tempting: 20, if you overlook *with replacement*. It is about 13.
# - **10f** Tempting: 5, if you believe the name. Run the cell twice. It is 1.
#
# **Goes wrong.**
#
# - In 10.1, somebody repairs `epoch` with `with_epoch`. This stops the draws, but keys still repeat.
# - In 10.1, somebody only removes the handler from `complete`. A file that ends between two samples is the point of the
#   exercise, because somebody has to count. In several workers, each one would count its own share.
# - In 10.2, somebody looks only at the size. Which worker has no shard?
# - A proxy also catches requests to 127.0.0.1. Set `NO_PROXY=127.0.0.1`.
# - A cell was interrupted while a server was running. The server ends with its `with`, so run the cell again.
#
# **Extra.** If you will write pipelines for several GPUs, read "Every sample once, on all ranks" first.

# %% [markdown]
# ## How many shards?
#
# Shards aren't cut up. They're dealt first to the ranks (one process for each GPU), then to the workers of each rank. A
# worker with one shard more reads longer while the others wait, and a worker without any raises an error in WebDataset.
# Small shards cost a request each. Large shards mix badly, and if a job stops, a worker must read them again from the
# start. How many should you write?
#
# ### Exercise 10.2 · 5 min · ●○○
#
# Write `choose_shards`. The number that it returns has these properties:
#
# - Every worker of every rank gets the same number of shards, at least one. Without workers, a rank reads by itself.
# - A shard has between 64 MB and 1,000 MB and contains at least one sample. <!-- given -->
# - If the data are too small for 64 MB per reader, each reader gets one shard. <!-- given -->

# %%
from course_utils.stories.shard_pipelines import SHOWN

for name, case in SHOWN.items():
    print(f"{name:9}  {case}: {case.mb:,.0f} MB")

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# How many processes read at the same time? The answer is a multiple of this number.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Aim at 256 MB, in the middle. How many shards of this size does each reader get? Round, and use at least one.
# <!-- given -->
#
# </details>


# %%
def choose_shards(samples: int, sample_mb: float, workers: int, ranks: int) -> int:
    """Return the number of shards for `samples`, which `workers` on each of `ranks` read."""
    ### BEGIN SOLUTION
    places = max(1, workers) * ranks
    each = round(samples * sample_mb / places / 256)
    return places * max(1, min(each, samples // places))  # no shard may be empty
    ### END SOLUTION


# %%
cu.check("10.2", choose_shards)

# %% [markdown]
# ## You now can
#
# - say what a shard saves, and when a copy beats a stream;
# - stream over HTTP, and find the number of workers that hides the latency;
# - notice a broken connection instead of training on less data;
# - write pipelines that mix before they decode, and have a new order in each epoch;
# - choose the number of shards for all workers that will read them.
#
# Next: [11 Feed many GPUs and survive a restart](11_feed_many_gpus.ipynb), because shards must be dealt to ranks, too.
# And if somebody has just told you that library X is faster,
# [B Choose a library for your data](B_which_library_when.ipynb) lets you check.

# %% [markdown]
# # Extra
#
# The core ends here. No later notebook's core needs the sections below, and each section needs only the core.
#
# ## Every sample once, on all ranks
#
# WebDataset deals the shards to workers automatically, but not to ranks. Under torchrun, which starts a process for
# each GPU and sets `RANK`, it raises an error until you choose a `nodesplitter`. `wds.split_by_node` reads the rank
# from `RANK`, or from `torch.distributed` if `RANK` is not set. But a spawned worker doesn't belong to a process group,
# so without `RANK` it assumes that it's alone, and every rank reads all the data. `resampled` doesn't help either,
# because then each worker of each rank draws by itself. Therefore, decide in the main process which shards a rank
# reads, and pass them to the workers.
#
# All ranks must shuffle in the same order, or their shares overlap. `np.random.default_rng(epoch)` gives the same
# numbers on all ranks. WebDataset then gets only the shards of its rank, and must neither divide them again nor stop
# because a worker has no shard:


# %%
def make_stream(urls: list[str], epoch: int, rank: int, world_size: int) -> wds.WebDataset:
    order = np.random.default_rng(epoch).permutation(urls).tolist()  # the same on all ranks
    mine = order[rank::world_size]
    data = wds.WebDataset(mine, shardshuffle=False, nodesplitter=None, empty_check=False)
    return data.shuffle(100)


ranks = [{sample["__key__"] for sample in make_stream(files, 1, rank, 3)} for rank in range(3)]
print([len(rank) for rank in ranks], "samples,", len(set.union(*ranks)), "different ones")

# %% [markdown]
# Our own `stream_shards` follows these rules. But neither it nor WebDataset can resume in the middle of an epoch. You
# would have to store the shards and samples that were read, and WebDataset's author writes that
# [it cannot do this for you](https://github.com/webdataset/webdataset/issues/271).

# %% [markdown]
# ## Shards in other places, and a server that dies
#
# `stream_shards` reads from any storage system, and only one argument changes:
#
# ```python
# stream_shards("shards", fs=cu.slow_storage("shards", "busy Lustre"))       # emulated
# stream_shards("s3://bucket/shards", fs=fsspec.filesystem("s3", profile="me"))  # needs s3fs
# stream_shards("/eos/me/shards", fs=fsspec.filesystem("root", hostid="host"))  # needs fsspec-xrootd
# ```
#
# The last line reads over XRootD, as jobs on the grid do, with
# [fsspec-xrootd](https://github.com/scikit-hep/fsspec-xrootd).
# [EOS](https://information-technology.web.cern.ch/services/eos-service), the disk storage of CERN, is also mounted as
# the folder `/eos`, but for many files, LHCb's
# [starterkit](https://lhcb-starterkit-run3.docs.cern.ch/first-analysis-steps/eos-storage) recommends XRootD instead.
#
# Can't you just give WebDataset itself an `s3://` address?

# %%
try:
    next(iter(wds.WebDataset("s3://bucket/shard-{000000..000019}.tar", shardshuffle=False)))
except ValueError as error:
    print(error)

# %% [markdown]
# It has no client for S3. `"pipe:aws s3 cp s3://bucket/... -"` works if this program is installed, and a signed
# `https://` address works if `curl` is installed. And if a server dies and doesn't come back? A reader that counts
# raises an error:

# %%
with object_store(shards, None) as store:
    samples = iter(stream_shards(store.url, headers=store.headers, buffer=1))
    next(samples)
    store.kill()
    try:
        served(samples)
    except ConnectionError as error:
        print(str(error).replace(f"{store.url}/", ""))
    store.restart()
    print("events after a restart:", served(stream_shards(store.url, headers=store.headers)))

# %% [markdown]
# ## Three more snippets
#
# Each card shows what the printed code of a published recipe does, and what the repaired code does. Unfold it to read
# both. Be careful with `cached` on a shared machine: once its folder exists, the printed code runs, and never removes a
# shard from it (`cache_size=-1`). Also note that `.batched(64)` yields the last, shorter batch, unless you pass
# `partial=False`.

# %%
from course_utils.stories.snippets import compare_snippets, numbered_shards

numbered = numbered_shards(tempfile.mkdtemp(dir=room.name))
compare_snippets(numbered, "labels", "images", "cached")

# %% [markdown]
# ## Other libraries
#
# [Appendix B](B_which_library_when.ipynb) loads the same samples with other libraries on your machine, among them
# Hugging Face `datasets` and tf.data, and shows which of them suits which data. Libraries that stream are made for
# large samples: with small events we measured WebDataset hundreds of times slower than the three lines of notebook 06.
