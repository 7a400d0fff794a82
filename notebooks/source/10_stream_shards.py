# %% [markdown]
# # 10 · Stream shards with WebDataset
#
# **You will do:** put 2,000 files into 20, stream them over HTTP, and repair pipelines that lecture notes print.
#
# **You will learn**
#
# - what a shard saves on a storage far away, and what it costs,
# - where overlap comes from when data are streamed,
# - to notice when a connection breaks, instead of training on less,
# - what `resampled`, `shardshuffle` and shuffle buffers really do,
# - into how many shards to write your data.
#
# **You need:** notebooks 05 and 06. A CPU is enough. **Minutes:** {minutes}.

# %%
import course_utils as cu

cu.ready("10")

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Script.**
#
# - *4 min* **Why shards.** Prediction 10a; open one tar file on the wall and read the names.
# - *4 min* **Streaming.** Predictions 10b and 10c: one worker, then four.
# - *3 min* **A connection breaks.** Prediction 10d. Read the warning that nobody would see.
# - *14 min* **Draws and orders.** Predictions 10e and 10f, then exercise 10.1.
# - *7 min* **How many shards?** Exercise 10.2; leave it out if time is short.
#
# **Board.** A worker as a pipe with one tap: wait, pour, decode, wait. Draw four below each other,
# shifted. Ask where the GPU waits, and what a buffer behind the taps would change.

# %% [markdown]
# ## Why shards
#
# An object store such as [Amazon S3](https://docs.aws.amazon.com/AmazonS3/latest/userguide/optimizing-performance.html) has
# no folders and no blocks. You ask over HTTP for an object, or for a range of its bytes, and you
# wait a tenth of a second for the first of them. With one file for each event you wait that long for each event. A **shard** is a
# tar file with many samples, which is read from its beginning to its end.

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
# Files whose names agree up to the first dot are one **sample**; what follows the dot is the name of the field. The files of
# a sample must lie side by side, because a reader never looks back. `write_shards` shuffled the events once, while it wrote
# them, since a stream can only mix neighbours (notebook 05). This function is ours. It takes images from `image_samples` as well, and leaves a list
# with sizes and checksums beside the shards; [WebDataset](https://github.com/webdataset/webdataset) itself has `ShardWriter`.

# %%
cu.predict(
    "10a",
    "An epoch of 2,000 events from an emulated S3, one request after the other. How many times "
    "as long does it take with one file for each event as with 20 shards?",
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
    seen = storage.counters()
    print(f"{name}: {count:,} events, {seen.requests:,} requests, {seen.bytes_read / 1e6:.1f} MB")
    return (clock() - start) / 1e9


def from_files(fs):
    files = NpzEvents(events, fs=fs)
    return (files[index] for index in range(len(files)))


# %%
from course_stories.shard_pipelines import plot_epochs

epochs = {
    "a file each": seconds(events, "files", from_files),
    "20 shards": seconds(
        shards, "shards", lambda fs: stream_shards(shards, fs=fs, decode=decode_event)
    ),
}
plot_epochs(epochs)

# %%
cu.reveal("10a", epochs["a file each"] / epochs["20 shards"])

# %% [markdown]
# A hundred times fewer requests, and that is the whole gain: the bytes are even more, since tar fills up every file to full
# blocks. The price is that no event can be asked for by its number any more, and that a shuffle is only an order of shards
# and a buffer. A tar file is also only a container, no codec: JPEGs in a tar take as long to decode as JPEGs in files (notebook 06).
#
# ## Streaming
#
# Much is promised of streaming. The notes of a lecture on training at scale say: *streaming removes disk entirely, pulling data at
# network speed.* It removes nothing, because the network is the storage now, with its own latency and bandwidth.
# The same notes go on: *as one shard is consumed, the next is already downloading.* Is it?
#
# `object_store` starts a server on this machine, with real HTTP, real connections, and the latency and bandwidth of the
# emulated S3. Our GPU takes 30 ms for a batch, and the workers are started before we look. <!-- given -->

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
        for epoch in range(2):  # in the first epoch the workers start; the second one counts
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
# Look at the worker: it waits for a shard, decodes it, and only *then* asks for the next one. Nothing is downloading behind its back.

# %%
cu.predict("10c", "Four workers stream. What share of the time is the GPU idle?", unit="%")

# %%
four = train(workers=4)
Timeline({"one worker": one, "four workers": four})

# %%
cu.reveal("10c", 100 * four.summary().idle)

# %% [markdown]
# Four workers have four streams: while one of them waits, the others decode. Waiting takes no core, so here more workers than cores may
# pay. Much of what is left is the wait for the first batches, at the left end of the picture; in a long epoch it hardly counts.
#
# ## A connection breaks
#
# In a training over days, on many machines, some connections break. We take four shards with 400 events, let the
# download of each break off once, and give WebDataset the handler that many recipes give it. <!-- given -->

# %%
cu.predict(
    "10d",
    "Four shards, and the download of each breaks off once, after 200 kB. WebDataset is told to "
    "warn and to go on. How many of the 400 events does the epoch have?",
    unit="events",
)

# %%
import shutil
import warnings
from urllib.request import urlopen

import webdataset as wds
from webdataset import gopen

if not shutil.which("curl"):  # which WebDataset calls for http://
    gopen.gopen_schemes["http"] = lambda url, mode, bufsize: urlopen(url)


def served(samples):
    with warnings.catch_warnings(record=True):  # it warns once or twice for each shard
        warnings.simplefilter("always")
        return sum(1 for _ in samples)


# %%
with object_store(shards, "S3", break_after=200_000) as store:
    urls = [store.url_of(path.name) for path in paths[:4]]
    theirs = wds.WebDataset(urls, shardshuffle=False, handler=wds.warn_and_continue)
    left = served(theirs)
cu.reveal("10d", left)

# %% [markdown]
# The other events are gone, and nobody counts them: there is a warning in a log that nobody reads, and a model that saw less. Without
# the handler there would be an error, but not always: a file that was cut off *between* two samples is a good tar file
# for Python, which ends there without any error.
#
# So a reader has to know how much should come. Ours takes that from the list that `write_shards` left, and asks again from
# the byte where it broke:

# %%
with object_store(shards, "S3", break_after=200_000) as store:
    some = [f"{store.url}/{path.name}" for path in paths[:4]]
    print("events:", served(stream_shards(some, headers=store.headers)))
    print(store.counters())

# %% [markdown]
# ## Draws and orders
#
# Two options of WebDataset promise a new order in each epoch. `resampled=True` draws shards; `shardshuffle=100` shuffles
# them. What do they do?

# %%
cu.predict("10e", "20 draws out of 20 shards: how many different ones, on average?", unit="shards")

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
# `resampled` draws *with replacement*, for ever. In as many draws as there are shards,
# a third of the data is not seen, a quarter twice or more. That may be fine for a long training, if you know it:
# stop after n samples by `.with_epoch(n)`, and do not take them for an epoch.
#
# `shardshuffle` shuffles, but its seed is drawn once, when the pipeline is made. With `detshuffle=True` it counts epochs, as long as
# the workers are persistent.
#
# The last thing to know before you repair: `.shuffle(n)` holds n of whatever flows past it. Undecoded files are small; decoded
# images are not, and notebook 05 counted what 10,000 of them take in each worker.
#
# ### Exercise 10.1 · 10 min · ●●○
#
# These three pipelines are taken from lecture notes and recipes. All of them run, and none does what its comment says. Repair them where they stand:
#
# - each pass over the pipeline of `epoch` gives every key once, and in a new order,
# - `mixed` decodes a sample only when it is about to serve it,
# - `complete` raises an error when fewer than `count` samples came, wherever a file was cut off.
#
# <details><summary>Hint 1: order</summary>
#
# Reread what is said above about `detshuffle`.
#
# </details>
# <details><summary>Hint 2: buffer</summary>
#
# `.shuffle` works on whatever flows past it: also on undecoded bytes.
#
# </details>
# <details><summary>Hint 3: errors</summary>
#
# The default handler raises, but not for a file that ends between two samples. Make `complete` a generator: it yields each sample,
# counts, and compares after the loop.
#
# </details>


# %%
def epoch(urls):  # the keys of an epoch, in another order each time
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
    number = 0
    for sample in wds.WebDataset(urls, shardshuffle=False):
        number += 1
        yield sample
    if number != count:
        raise EOFError(f"{number} samples came, and there should be {count}")


# %%
cu.check("10.1", epoch, mixed, complete)

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **10a** Those who count requests say 100, and the bytes make it a little less.
# - **10b** Those who believe the notes say 0 to 10, "the next is already downloading". It is most of
#   the time.
# - **10c** A quarter of 10b is a good guess for a long epoch. In this short one the start is most of
#   what is left, so it is more.
# - **10d** The tempting answers are 400 and 0. It is in between, and nobody counts.
# - **10e** Those who overlook *with replacement* say 20. It is about 13.
# - **10f** Those who believe the name say 5; let them run the cell twice. It is 1.
#
# **Goes wrong.**
#
# - In 10.1 `epoch` is mended by `with_epoch`: that stops the drawing, and still repeats keys.
# - In 10.1 `complete` only loses its handler. The file that ends between two samples is the point:
#   somebody has to count. In several workers each would count its own share.
# - A proxy also catches 127.0.0.1. `NO_PROXY=127.0.0.1` helps.
# - A cell was interrupted while a server ran. The server ends with its `with`; run the cell again.

# %% [markdown]
# ## How many shards?
#
# Shards are dealt out whole: first to the ranks (one process for each GPU), then to the workers of each rank. A worker with one shard more
# reads longer, and the others wait for it; a worker without any ends with an error in WebDataset. Small shards cost a request each.
# Large ones mix badly, and must be read again from the start when a job breaks off.
#
# ### Exercise 10.2 · 5 min · ●○○
#
# Write `choose_shards`. It returns a number of shards, so that
#
# - every worker of every rank gets the same number of them, at least one; without workers a rank reads by itself,
# - a shard has between 64 MB and 1,000 MB, <!-- given -->
# - and where the data are too small for that, there are as few shards as possible.

# %%
from course_stories.shard_pipelines import SHOWN

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
# Aim in the middle, at 256 MB: how many shards of that size does each reader get? Round, and take at least one. <!-- given -->
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
# ## You now can
#
# - say what a shard saves, and count it,
# - stream over HTTP, and find the number of workers that hides the latency,
# - notice a broken connection instead of training on less,
# - write pipelines that mix before they decode, and have a new order in each epoch,
# - choose the number of shards for all who will read them.
#
# Next: [notebook 11](11_feed_many_gpus.ipynb), many GPUs, and how to survive a restart.

# %% [markdown]
# # Extra
#
# The core ends here. No later notebook's core needs what follows, and each section only the core.
#
# ## Every sample once, on all ranks
#
# WebDataset divides the shards among workers by itself. Among ranks it does not: where torchrun, which starts a process for each GPU, has set `RANK`, it stops
# with an error until you choose a `nodesplitter`. `wds.split_by_node` asks `RANK`, or else `torch.distributed`. But a
# worker that was not forked is in no process group: without the variable it takes itself for the only one, and
# every rank reads everything. `resampled` is no way out, because each worker of each rank then draws by itself. So decide in the
# main process which shards a rank reads, and send the answer along.
#
# ### Exercise 10.3 · 10 min · ●●○
#
# `make_stream` returns a pipeline of samples for one rank in one epoch. Your targets:
#
# - all ranks and workers together serve every sample exactly once, also under torchrun,
# - a shard is read in one place only, and a worker without a shard is no error (each rank has at least one),
# - the order of the shards is new in each epoch, and the list `urls` stays as it is.
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
# Our own `stream_shards` keeps these rules. But neither it nor WebDataset can go on in the middle of an epoch after a restart: the
# lecture notes say that WebDataset can, its author says that it cannot.

# %% [markdown]
# ## Where shards lie, and when a server dies
#
# `stream_shards` reads from anywhere; the storage is one argument, and nothing else changes:
#
# ```python
# stream_shards("shards", fs=cu.slow_storage("shards", "busy Lustre"))       # emulated
# stream_shards("s3://bucket/shards", fs=fsspec.filesystem("s3", profile="me"))  # needs s3fs
# ```
#
# The lecture notes give WebDataset itself an `s3://` address:

# %%
try:
    next(iter(wds.WebDataset("s3://bucket/shard-{000000..000019}.tar", shardshuffle=False)))
except ValueError as error:
    print(error)

# %% [markdown]
# It has no client for S3. `"pipe:aws s3 cp s3://bucket/... -"` works where that program is installed, and a signed `https://`
# address works where `curl` is. And if a server dies for good, a reader that counts ends with an error:

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
# ## Three snippets of lecture notes
#
# Here are three more snippets that the notes print. Each card says what the printed code does and what the mended code
# does; unfold it to read both. Mind `cached` on a shared machine: once its folder is there, the printed code runs, and
# never removes a shard from it (`cache_size=-1`).

# %%
from course_stories.snippets import compare_snippets, numbered_shards

numbered = numbered_shards(tempfile.mkdtemp(dir=room.name))
compare_snippets(numbered, "labels", "images", "cached")

# %% [markdown]
# ## Other libraries
#
# Appendix B lets eight libraries load the same samples on your machine, and says which of a dozen fits which data;
# Hugging Face `datasets` and tf.data are told there too. Libraries that stream are built for large
# samples: with small events we measured WebDataset hundreds of times slower than the record loader of notebook 06.

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Goes wrong.**
#
# - In 10.2 the misconception is the size alone: ask which worker has no shard.
# - In 10.3 it is `split_by_node`, which works in the main process, and so in every small test.
#
# **Extra.** For those who will write pipelines for several GPUs: exercise 10.3 first.
