# %% [markdown]
# # 10 · Stream shards with WebDataset
#
# {here: read}
#
# **You will do:** put 2,000 files into 20, stream them over HTTP, and repair three common pipelines.
#
# **You will learn:**
# - what a shard saves on a distant storage, and what it costs; <!-- 10a -->
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
# - *6 min* **Why shards.** Prediction 10a. Open one tar file on the wall and read the names.
# - *6 min* **Streaming.** Predictions 10b and 10c: one worker, then four.
# - *4 min* **A connection breaks.** Prediction 10d. Read aloud the warning that usually nobody sees.
# - *22 min* **Draws and orders.** Predictions 10e and 10f, then exercise 10.1.
# - *10 min* **How many shards?** Exercise 10.2.
#
# **Leave out.** Exercise 10.2. Name one reason for few shards and one for many.
#
# **Board.** Draw a worker as a pipe with one tap: wait, pour, decode, wait. Draw four of them, one above the other and
# shifted in time. Ask where the GPU waits, and what a buffer behind the taps would change.

# %% [markdown]
# ## Why shards
#
# An object store such as [Amazon S3](https://docs.aws.amazon.com/AmazonS3/latest/userguide/optimizing-performance.html)
# has no folders and no blocks. You request an object over HTTP, or a range of its bytes, and wait a tenth of a second
# for the first of them. With one file per event, you wait that long for each event. A **shard** is a tar file with many
# samples, which a program reads from the beginning to the end.

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
# Files whose names agree up to the first dot form one **sample**. The rest of the name is the name of the field. The
# files of a sample must follow each other, because a reader never goes back. `write_shards` shuffles the events once,
# while it writes them, because a stream can mix only neighbors (notebook 05). It also writes a list of the shards, with
# sizes and checksums. The function belongs to this course, and accepts any fields of bytes, such as images.
# [WebDataset](https://github.com/webdataset/webdataset) itself has `ShardWriter`.

# %%
cu.predict(
    "10a",
    "An epoch reads 2,000 events from an emulated S3, one request after the other. How many times "
    "as long does it take with one file per event as with 20 shards?",
    unit="times",
)

# %%
from course_utils.hardware.storage import VirtualClock
from course_utils.loading.events import NpzEvents
from course_utils.loading.shards import decode_event, stream_shards


def seconds(folder, name, read):
    storage = cu.slow_storage(folder, "S3")
    clock = VirtualClock(storage)  # adds up the time that we would have waited
    start, count = clock(), sum(1 for _ in read(storage))
    seen = storage.counters()
    print(f"{name}: {count:,} events, {seen.requests:,} requests, {seen.bytes_read / 1e6:.1f} MB")
    return (clock() - start) / 1e9


def from_files(fs):
    files = NpzEvents(events, fs=fs)
    return (files[index] for index in range(len(files)))


# %%
from course_utils.stories.figures import bars

epochs = {
    "one file per event": seconds(events, "files", from_files),
    "20 shards": seconds(
        shards, "shards", lambda fs: stream_shards(shards, fs=fs, decode=decode_event)
    ),
}
bars(epochs, "seconds for an epoch, emulated S3", "{:.3g} s".format)

# %%
cu.reveal("10a", epochs["one file per event"] / epochs["20 shards"])

# %% [markdown]
# The gain is a hundred times fewer requests, and nothing else. The bytes are more than before, because tar rounds each
# file up to blocks of 512 bytes. <!-- given --> Shards have a price. You can no longer request an event by its index,
# and you can shuffle only the order of the shards and a buffer. A tar file is also only a container and not a codec, so
# JPEGs in a tar take as long to decode as JPEGs in files (notebook 06).
#
# ## Streaming
#
# A common belief is that *streaming removes disk entirely, pulling data at network speed.* It removes nothing. The
# network is the storage now, with its own latency and bandwidth. Another belief is that *as one shard is consumed, the
# next is already downloading.* Is it?
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
# the background. WebDataset does the same.

# %%
cu.predict("10c", "Four workers stream. What share of the time is the GPU idle?", unit="%")

# %%
four = train(workers=4)
Timeline({"one worker": one, "four workers": four})

# %%
cu.reveal("10c", 100 * four.summary().idle)

# %% [markdown]
# Four workers have four streams. While one worker waits, the others decode. Waiting needs no core, so more workers than
# cores may pay here. Most of the rest is at the start of the picture, where the workers wait for their first shards. In
# a long epoch it hardly counts.
#
# ## A connection breaks
#
# In a training over days on many machines, some connections break. We take four shards with 400 events, break the
# download of each shard once, and give WebDataset the handler of a published recipe. <!-- given -->

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
# The other events are missing, and nobody counts them. There is a warning in a log, and a model that was trained on less
# data. Without the handler you usually get an error, but not always, because a file that was cut off *between* two samples is a
# good tar file for Python, which ends there without any error. The same is true between two files of one sample.
#
# A reader must therefore know how much to expect. Ours takes the number from the list of `write_shards`. It then
# requests the rest, starting at the byte where the connection broke:

# %%
with object_store(shards, "S3", break_after=200_000) as store:
    some = [f"{store.url}/{path.name}" for path in paths[:4]]
    print("events:", served(stream_shards(some, headers=store.headers)))
    print(store.counters())

# %% [markdown]
# ## Draws and orders
#
# Two options of WebDataset promise a new order in each epoch. `resampled=True` draws shards, and `shardshuffle=100`
# shuffles them. What do they really do?

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
# `resampled` draws *with replacement*, forever. In as many draws as there are shards, a third of the data is not seen, a
# quarter twice or more. That may be fine for a long training, if you know it. Stop after n samples with
# `.with_epoch(n)`, and do not call them an epoch.
#
# `shardshuffle` draws one seed when you create the pipeline, so every epoch has the same order. With `detshuffle=True`
# it counts epochs, as long as the workers are persistent.
#
# One more fact before you repair: `.shuffle(n)` keeps n samples in memory, in the form in which they reach it.
# Undecoded files are small, and decoded images are not. Notebook 05 counted the memory of 10,000 images in each worker.
#
# ### Exercise 10.1 · 10 min · ●●○
#
# These three pipelines are common in recipes. All of them run, but none does what its comment says. Repair each one in
# the cell below:
#
# - Each pass over `epoch` yields every key once, in a new random order of the shards. With workers, all of them
#   together yield every key once.
# - `mixed` decodes a sample only shortly before it yields it. Its order is new in each pass.
# - `complete` raises an error if fewer than `count` samples arrive, or if a sample lacks a field.
#
# None of them may hide an error, or hold all samples in memory. (`complete` runs in one process. In several workers,
# each worker would count only its own part.)
#
# <details><summary>Hint 1: order</summary>
#
# Read again what `detshuffle` does.
#
# </details>
# <details><summary>Hint 2: buffer</summary>
#
# `.shuffle` accepts samples in any form, even undecoded bytes.
#
# </details>
# <details><summary>Hint 3: errors</summary>
#
# The default handler raises an error, but not for a file that ends between two samples or two fields. Make `complete` a
# generator. Compare the keys of each sample with the keys of the first, yield it, and count. Check the count after the
# loop.
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
# - **10a** People who count requests say 100. The bytes make it slightly less.
# - **10b** People who believe in "already downloading" say 0 to 10. It is most of the time.
# - **10c** A quarter of 10b is a good guess for a long epoch. In this short one, the start is most of the rest, so it
#   is more.
# - **10d** Tempting answers are 400 and 0. It is in between, and nobody counts.
# - **10e** People who overlook *with replacement* say 20. It is about 13.
# - **10f** People who believe the name say 5. Let them run the cell twice. It is 1.
#
# **Goes wrong.**
#
# - In 10.1, some repair `epoch` with `with_epoch`. This stops the draws, but keys still repeat.
# - In 10.1, some only remove the handler from `complete`. A file that ends between two samples is the point of the
#   exercise, because somebody has to count. In several workers, each one would count its own share.
# - A proxy also catches requests to 127.0.0.1. Set `NO_PROXY=127.0.0.1`.
# - A cell was interrupted while a server was running. The server ends with its `with`, so run the cell again.

# %% [markdown]
# ## How many shards?
#
# Shards are divided as a whole, first among the ranks (one process for each GPU), then among the workers of each rank. A
# worker with one shard more reads longer, and the others wait for it. A worker without a shard raises an error in
# WebDataset. Small shards cost a request each. Large shards mix badly, and a worker must read them again from the start
# if a job stops.
#
# ### Exercise 10.2 · 5 min · ●○○
#
# Write `choose_shards`. It returns a number of shards with these properties:
#
# - Every worker of every rank gets the same number of shards, at least one. Without workers, a rank reads by itself.
# - A shard has between 64 MB and 1,000 MB, and contains at least one sample. <!-- given -->
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
# Aim at 256 MB, in the middle. How many shards of this size does each reader get? Round, and use at least one. <!-- given -->
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
# - say what a shard saves, and count it;
# - stream over HTTP, and find the number of workers that hides the latency;
# - notice a broken connection instead of training on less data;
# - write pipelines that mix before they decode, and have a new order in each epoch;
# - choose the number of shards for all workers that will read them.
#
# Next: [notebook 11](11_feed_many_gpus.ipynb), many GPUs, and how to survive a restart.

# %% [markdown]
# # Extra
#
# The core ends here. No later notebook's core needs the sections below, and each section needs only the core.
#
# ## Every sample once, on all ranks
#
# WebDataset divides the shards among workers automatically, but not among ranks. Under torchrun, which starts a process
# for each GPU and sets `RANK`, WebDataset raises an error until you choose a `nodesplitter`. `wds.split_by_node` reads
# the rank from `RANK`, or from `torch.distributed` if `RANK` is not set. A spawned worker does not belong to a process
# group. Without `RANK`, it assumes that it is alone, and every rank reads all the data. `resampled` does not help,
# because each worker of each rank then draws by itself. Therefore, decide in the main process which shards a rank reads,
# and pass them to the workers.
#
# All ranks must shuffle in the same order, or their shares overlap. `np.random.default_rng(epoch)` gives the same numbers
# on all ranks. WebDataset then gets only the shards of its rank, and must neither divide them again nor stop because a
# worker has no shard:


# %%
def make_stream(urls: list[str], epoch: int, rank: int, world_size: int) -> wds.WebDataset:
    order = np.random.default_rng(epoch).permutation(urls).tolist()  # the same on all ranks
    mine = order[rank::world_size]
    data = wds.WebDataset(mine, shardshuffle=False, nodesplitter=None, empty_check=False)
    return data.shuffle(100)


ranks = [{sample["__key__"] for sample in make_stream(files, 1, rank, 3)} for rank in range(3)]
print([len(rank) for rank in ranks], "samples,", len(set.union(*ranks)), "different ones")

# %% [markdown]
# Our own `stream_shards` follows these rules. But neither `stream_shards` nor WebDataset can resume in the middle of an
# epoch. You would have to store the shards and samples that were read, and WebDataset's author writes that
# [it cannot do this for you](https://github.com/webdataset/webdataset/issues/271).

# %% [markdown]
# ## Shards in other places, and a server that dies
#
# `stream_shards` reads from any storage. Only one argument changes:
#
# ```python
# stream_shards("shards", fs=cu.slow_storage("shards", "busy Lustre"))       # emulated
# stream_shards("s3://bucket/shards", fs=fsspec.filesystem("s3", profile="me"))  # needs s3fs
# stream_shards("/eos/me/shards", fs=fsspec.filesystem("root", hostid="host"))  # needs fsspec-xrootd
# ```
#
# The last line reads over XRootD, as jobs on the grid do, with [fsspec-xrootd](https://github.com/scikit-hep/fsspec-xrootd).
# [EOS](https://information-technology.web.cern.ch/services/eos-service), the disk storage of CERN, is also mounted as the
# folder `/eos`. For many files, LHCb's
# [starterkit](https://lhcb-starterkit-run3.docs.cern.ch/first-analysis-steps/eos-storage) recommends XRootD instead.
#
# Recipes also give WebDataset itself an `s3://` address:

# %%
try:
    next(iter(wds.WebDataset("s3://bucket/shard-{000000..000019}.tar", shardshuffle=False)))
except ValueError as error:
    print(error)

# %% [markdown]
# It has no client for S3. `"pipe:aws s3 cp s3://bucket/... -"` works if this program is installed, and a signed
# `https://` address works if `curl` is installed. If a server dies and does not come back, a reader that counts raises
# an error:

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
# Three more snippets come from published recipes. Each card shows what the printed code does and what the repaired code
# does. Unfold it to read both. Be careful with `cached` on a shared machine: once its folder exists, the printed code
# runs, and never removes a shard from it (`cache_size=-1`). Also note that `.batched(64)` yields the last, shorter batch,
# unless you pass `partial=False`.

# %%
from course_utils.stories.snippets import compare_snippets, numbered_shards

numbered = numbered_shards(tempfile.mkdtemp(dir=room.name))
compare_snippets(numbered, "labels", "images", "cached")

# %% [markdown]
# ## Other libraries
#
# Appendix B loads the same samples with other libraries on your machine, and shows which of them suits which data. It
# includes Hugging Face `datasets` and tf.data. Libraries that stream are made for large samples: with small events we
# measured WebDataset hundreds of times slower than the three lines of notebook 06.

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Goes wrong.**
#
# - In 10.2, some look only at the size. Ask which worker has no shard.
#
# **Extra.** People who will write pipelines for several GPUs read "Every sample once, on all ranks" first.
