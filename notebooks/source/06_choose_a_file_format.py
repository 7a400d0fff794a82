# %% [markdown]
# # 06 · Choose a file format
#
# {here: read, decode}
#
# **You will do:** count what seven file formats ask of a storage system, then turn a slow loader into a fast one.
#
# **You will learn:**
#
# - to ask of any format how much you must read to get one event; <!-- 06a -->
# - what npz, HDF5, Parquet, SQLite, tar and ROOT are good and bad at; <!-- 06b 6.1 -->
# - to choose the chunks of an HDF5 file for the way you read it; <!-- 6.2 -->
# - why one loader is so much faster than another with the same data. <!-- 06c 06d -->
#
# **You need:** notebooks 01 and 04. A CPU is enough. **Minutes:** {minutes}.

# %%
import course_utils as cu

cu.ready("06")

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Script.**
#
# - *10 min* **How much must be read?** Prediction 06a, then the picture: the squares first, then the circles.
#   `course demo formats` puts the same on the wall.
# - *5 min* **Columns.** Prediction 06b. Ask for the minimum and the maximum of 256 random ids.
# - *8 min* **Exercise 6.1.** In pairs.
# - *22 min* **HDF5.** Draw the four chunk shapes, then exercise 6.2.
# - *13 min* **Four steps to a fast loader.** Prediction 06c: write the guesses on the board before the first
#   step. Prediction 06d before the workers.
#
# **Leave out.** Exercise 6.1. Let the room name the four formats.
#
# **Board.** Draw a rectangle, events from top to bottom, columns from left to right. Cut it into rows, then into
# columns, then into tiles. Each time, ask for one event and for one column, and shade what you'd have to read. This
# picture is the whole notebook.
#
# **Goes wrong.**
#
# - On a shared machine the measured times scatter, but the counts don't. Talk about the counts.
# - Time is short? Do the units and the four steps only.

# %% [markdown]
# ## How much must be read to get one event?
#
# Every format has a **unit**, the smallest amount that can be read: you may want less, but you get whole units.
# Here's why you'd try each format, and what its unit is:
#
# | Format | Why you'd try it | One event is stored in | The unit |
# |---|---|---|---|
# | **npz** per event | it's one line of Python | its own file, with a number | the file |
# | **npy**, and **HDF5** in one piece | no open per event any more | one large table | the rows of the event |
# | **tar shards** | a few large files, easy to copy and stream | a tar file of 250 events, with an index | the event |
# | **Parquet** | you often want one column | a row group: 256 events, column by column | the row group |
# | **SQLite** | you want one id out of a million | a tree of pages, sorted by event | a page of 4 KiB <!-- given --> |
# | **ROOT** | your experiment already writes it | one basket per column, with hundreds of events | the basket |

# %%
cu.predict(
    "06a",
    "256 events in order, from busy Lustre. How many times as long does one file per event (npz) "
    "take as one large file (npy)?",
    unit="times",
)

# %% [markdown]
# We write the same 1,000 events in all seven formats and read them in two ways: 256 events **in order**, and **one
# event** from anywhere. <!-- given --> Times on this disk are measured, while Lustre, the storage system of many
# clusters, and S3, in the cloud, are emulated.

# %%
from course_utils.stories.formats_compared import compare_formats

events = cu.data_path("events", "S")  # the small set: 2,000 events
formats = compare_formats(events)
formats.picture()

# %%
npz, npy = (
    formats.cost(name, "emulated busy Lustre", "in order").seconds for name in ("npz", "npy")
)
cu.reveal("06a", npz / npy)

# %% [markdown]
# The units explain the picture.
#
# **In order** (squares), nearly all formats are good, because a unit that you read for one event also contains the
# next ones. *Read whole units, and any format is fast.* The exceptions have very small units: npz opens a file for
# each event, and SQLite reads one page after another.
#
# **One event** (circles) is what training in random order reads, and there it gets expensive. In a terabyte of data,
# two random events hardly ever share a unit, so you pay a whole unit for each. In the last panel, Parquet and ROOT
# read about a hundred bytes for every byte that you need. A single reader on Lustre hardly notices, because it
# mostly waits, but your cluster does: one epoch over a terabyte would move about a hundred terabytes.
#
# Times depend on the machine but counts don't, so here they are.

# %%
formats

# %% [markdown]
# ## Columns are for questions about columns
#
# So what's Parquet good at? It stores each column separately, with the minimum and the maximum of each row group, so
# a *filter* can skip row groups that can't contain an answer. This is called push-down. Is it the cure?

# %%
cu.predict(
    "06b",
    "A filter asks a Parquet file for one event_id out of 2,000. How much of the file is read?",
    unit="%",
)

# %%
import pyarrow.parquet as pq

from course_utils.hardware.storage import counting_storage
from course_utils.loading.events import read_labels

some_id = int(read_labels(events).event_id[777])
size = (events / "pulses.parquet").stat().st_size
questions = {
    "one column": {"columns": ["charge"]},
    "bright pulses": {"columns": ["charge"], "filters": [("charge", ">", 100)]},
    "one event": {"filters": [("event_id", "=", some_id)]},
}

# %%
shares = {}
for name, question in questions.items():
    storage = counting_storage(events)  # it counts every read of a file in this folder
    rows = len(pq.read_table("pulses.parquet", filesystem=storage, **question))
    shares[name] = 100 * storage.counters().bytes_read / size
    print(f"{name:14} {rows:7,} pulses, {shares[name]:4.0f} % of the file read")

# %%
cu.reveal("06b", shares["one event"])

# %% [markdown]
# Reading one column costs only this column, and that's what Parquet is best at. The filter on the charge skips
# groups, because this file is sorted by energy, but the filter on the id skips none: every group contains small and
# large ids. (The end of the file, its directory, is even read twice.) *Push-down is not random access.* For that you
# need an **index**, a tree that leads from an id to its page, and SQLite has one.
#
# ### Exercise 6.1 · 5 min · ●○○
#
# Choose `"npz"`, `"npy"`, `"hdf5"`, `"parquet"`, `"sqlite"`, `"tar"` or `"root"` for each case. The files have the
# units of the table above, and the check compares your requests (opens included) and bytes with a good choice.
#
# - `training`: single events at random, from busy Lustre
# - `histogram`: the charges of all pulses, and nothing else
# - `display`: one event by its id, out of a million
# - `one_pass`: all events once, in order, from S3
#
# <details><summary>Hint</summary>
#
# There are four kinds of units: an event, a column, a page of a tree, a long piece. Several formats may be right.
#
# </details>

# %%
training = "npy"  ### SOLUTION
histogram = "parquet"  ### SOLUTION
display = "sqlite"  ### SOLUTION
one_pass = "tar"  ### SOLUTION

cu.check("06.1", training, histogram, display, one_pass)

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **06a** Tempting: 2 to 10, because both read the same bytes. It's hundreds of times. Let somebody compute it: one
#   file per event costs an open and a request per event, but in one large file requests merge.
# - **06b** Tempting: "less than one", because a filter is called push-down. The answer is the whole file,
#   because every group contains small and large ids.
#
# **Goes wrong.**
#
# - In 6.1 it's tempting to choose HDF5 for everything, because it "is the standard". Ask for its unit. For
#   `one_pass` nearly every answer is right, so point this out.
# - In 6.2 it's easy to fit a chunk to the slab alone. Shade the chunks that a cube then has to read.

# %% [markdown]
# ## HDF5: choose chunks for your reads
#
# With HDF5, you choose the unit: one piece, or **chunks** of a shape that you pick. A chunk with compression or a
# checksum can only be read as a whole, so which shape is good? We read 200 random events with four of them.

# %%
import tempfile
import time
from pathlib import Path

import h5py
import numpy as np

# a folder for everything that this notebook writes; it is removed when the kernel ends
room = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
here = Path(room.name)
pulses = np.load(events / "npy" / "pulses.npy")  # one row per pulse, four columns
offsets = np.load(events / "npy" / "offsets.npy")  # the start of each event


# %%
def read_some(chunks):
    with h5py.File(here / "chunks.h5", "w") as file:
        made = file.create_dataset("pulses", data=pulses, chunks=chunks, compression="gzip").chunks
    storage, wanted = counting_storage(here), 0
    with storage.open("chunks.h5") as raw, h5py.File(raw, rdcc_nbytes=10**6) as file:
        table = file["pulses"]  # with a small cache, because real files are larger than a cache
        for event in np.random.default_rng(0).permutation(len(offsets) - 1)[:200]:
            wanted += table[offsets[event] : offsets[event + 1]].nbytes
    counted = storage.counters()
    return made, counted.requests, counted.bytes_read / wanted


# %%
print("chunks          requests   bytes read for each byte")
for chunks in (256, 4), (65536, 4), (65536, 1), True:
    made, requests, amplification = read_some(chunks)
    print(f"{made!s:14} {requests:9} {amplification:15.1f}")

# %% [markdown]
# Chunks of a few events are fine, but large chunks are read, decompressed and thrown away for every event. With one
# column per chunk, an event needs four of them. h5py chooses the last shape for `chunks=True`: it doesn't know what
# you'll read, so it cuts across the events.
#
# ### Exercise 6.2 · 10 min · ●●○
#
# A volume has 64 × 192 × 192 voxels. One network reads **slabs** of four neighboring planes, `volume[z : z + 4]`,
# and another reads **cubes** of 48 voxels along each axis, from anywhere in the same file. The chunk cache of HDF5
# is off. Choose a chunk shape (z, y, x). For slab *and* cube, averaged over all places, a read must <!-- given -->
#
# - fetch at most 2 times the bytes that it needs, <!-- given -->
# - and take at most 400 requests. A chunk is one request.
#
# `try_chunks` measures only a few places, but the check computes the mean over all of them.
#
# <details><summary>Hint 1</summary>
#
# Along one axis, chunks of c and a read of r touch about (r + c) / r times the bytes. Along three axes, multiply.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Start with the slab: how many planes may a chunk have? Then make y and x as large as the cube allows.
#
# </details>

# %%
from course_utils.stories.chunk_trial import try_chunks

print(try_chunks((1, 192, 192)))
print(try_chunks(True))  # h5py chooses

# %%
chunks = (4, 16, 16)  ### SOLUTION

cu.check("06.2", chunks)

# %% [markdown]
# ## Four steps to a fast loader
#
# So far the storage was to blame, so let's take it away: 40,000 events of 128 pulses, shuffled, are warm in the page
# cache. What can still be slow? We start where it's easiest to start, with one npz per event (1,000 of them). The
# data stay the same, but each step changes the unit, or how often Python runs.

# %%
cu.predict(
    "06c", "How many times as fast as npz per event can one process load them?", unit="times"
)

# %%
import torch

rng = np.random.default_rng(0)
fields = {
    "pulses": rng.random((40_000, 128, 4), np.float32),
    "direction": rng.random((40_000, 3), np.float32),
    "energy": rng.random(40_000, np.float32),
    "event_id": np.arange(40_000),
}
for name, values in fields.items():
    np.save(here / f"{name}.npy", values)
(here / "npz").mkdir(exist_ok=True)
for event in range(1000):
    one = {name: values[event] for name, values in fields.items()}
    np.savez(here / "npz" / f"{event}.npz", **one)

# %%
speeds = {}


def measure(name, loader):
    """Measure epochs for a second and keep the fastest, as other programs only slow them down."""
    seconds = []
    while len(seconds) < 3 or sum(seconds) < 1:
        start, ids = time.perf_counter(), []
        for batch in loader:  # a copy to a GPU needs contiguous tensors
            batch = {field: tensor.contiguous() for field, tensor in batch.items()}
            ids.append(batch["event_id"].clone())
        seconds.append(time.perf_counter() - start)
    ids = torch.cat(ids)
    speeds[name] = len(ids) / min(seconds)
    ledger = f"{len(ids):,} served, {len(ids.unique()):,} of them unique"
    print(f"{name}: {speeds[name]:,.0f} events/s, {ledger}")


# %% [markdown]
# Each speed is shown with its ledger, because a speed doesn't count if an event is served twice. Step 1 reads one
# file per event.

# %%
# %%worker_module loader_npz
import numpy as np
from torch.utils.data import Dataset


class FileEach(Dataset):
    def __init__(self, folder, count):
        self.folder, self.count = folder, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        with np.load(f"{self.folder}/{index}.npz") as arrays:
            return dict(arrays)


# %%
from torch.utils.data import DataLoader

measure("npz per event", DataLoader(FileEach(here / "npz", 1000), 256, shuffle=True))

# %% [markdown]
# Where did the time go? Each event opens a file and takes four arrays out of a zip, so step 2 has one `.npy` file
# per field, mapped into memory: no open per event, no zip. Each process opens its own map, as in notebook 04.


# %%
# %%worker_module loader_mapped
import numpy as np
from torch.utils.data import Dataset

from keepfed.loaders.workers import LazyFile


class Mapped(Dataset):
    def __init__(self, folder, fields, count):
        paths = {name: folder / f"{name}.npy" for name in fields}
        self.files = {n: LazyFile(np.load, path, mmap_mode="r") for n, path in paths.items()}
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return {name: np.array(lazy.file[index]) for name, lazy in self.files.items()}


# %%
mapped = Mapped(here, [*fields], 40_000)
measure("npy, mapped", DataLoader(mapped, 1024, shuffle=True))

# %% [markdown]
# Better, but Python still runs for each event. The sampler knows all indices of a batch, so why ask for them one by
# one? In step 3, `__getitems__` gets the whole list, so Python runs once per batch and nothing is left to collate.


# %%
# %%worker_module loader_batched
import torch
from loader_mapped import Mapped


class Batched(Mapped):
    def __getitems__(self, indices):
        return {n: torch.from_numpy(lazy.file[indices]) for n, lazy in self.files.items()}


def as_it_is(batch):
    return batch


# %%
whole_batches = Batched(here, [*fields], 40_000)
options = {"batch_size": 1024, "shuffle": True, "collate_fn": as_it_is}
measure("whole batches", DataLoader(whole_batches, **options))

# %% [markdown]
# What's left to remove? The DataLoader itself, which makes a list of Python numbers for each batch. In step 4 three
# lines remain: map, shuffle, gather. `index_select` is torch's fastest way to gather rows. (The map has the mode
# "c", because torch wants writable memory, but changes stay in this process.)


# %%
# %%worker_module loader_columns
import numpy as np
import torch


class Columns:
    def __init__(self, folder, fields, batch_size):
        files = {name: np.load(folder / f"{name}.npy", mmap_mode="c") for name in fields}
        self.columns = {name: torch.from_numpy(file) for name, file in files.items()}
        self.count, self.batch_size = len(files["event_id"]), batch_size

    def __iter__(self):
        for rows in torch.randperm(self.count).split(self.batch_size):
            yield {name: torch.index_select(c, 0, rows) for name, c in self.columns.items()}


# %%
columns = Columns(here, [*fields], 1024)
measure("three lines", columns)

# %%
from course_utils.stories.figures import dots

faster = {name: rate / speeds["npz per event"] for name, rate in speeds.items()}
dots(faster, "times as many events/s as npz per event", "{:,.0f}".format)

# %%
cu.reveal("06c", speeds["three lines"] / speeds["npz per event"])

# %% [markdown]
# No step was clever. We removed the file per event, then the Python work per event, then everything between the file
# and the batch. Would workers make it even faster?

# %%
cu.predict(
    "06d", "Step 3 gets two workers. How many times as many events/s does it load?", unit="times"
)

# %%
measure("two workers", DataLoader(whole_batches, num_workers=2, persistent_workers=True, **options))
cu.reveal("06d", speeds["two workers"] / speeds["whole batches"])

# %% [markdown]
# It loads fewer. The batch is ready almost at once, but it's in the wrong process, and moving a batch between
# processes costs more than building it. Workers pay if a batch takes long to build, for example because of decoding,
# or if the storage is slow. So choose the format first, then count the work that's left for workers.

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **06c** Tempting: 10 to 50, because each step sounds like a detail. It's hundreds of times.
# - **06d** Tempting: 2, "as in notebook 00". It's far less than 1. Ask what a worker must do with a ready batch.

# %% [markdown]
# ## You now can
#
# - name the unit of a format and count the cost of an access;
# - choose a format, or the chunks of an HDF5 file, for the way you read;
# - load events hundreds of times faster, and say when workers don't help.
#
# Next: [07 Cache and stage to /dev/shm](07_cache_and_stage.ipynb), because no format helps bytes in the wrong place.

# %% [markdown]
# # Extra
#
# The core ends here. No later notebook's core needs the sections below, and each section needs only the core.
#
# ## And the GPU?
#
# Let's emulate a GPU that takes 20 ms for a batch of 128, as for a small model, and feed it from step 1 and from
# step 4. <!-- given -->

# %%
from itertools import islice

from keepfed.measure.picture import Timeline


def train(loader):
    gpu = cu.get_accelerator(step_ms=20)
    with cu.record() as trace:
        for batch in islice(trace.batches(loader, ids="event_id"), 7):
            gpu.step(gpu.upload(batch)).item()
    return trace


npz = train(DataLoader(FileEach(here / "npz", 1000), 128, shuffle=True))
fast = train(Columns(here, [*fields], 128))
Timeline({"npz per event": npz, "three lines": fast})

# %% [markdown]
# With step 4, you hardly see the gaps between the GPU's steps, without any worker or prefetching.
#
# ## What threads do to a gather
#
# By default, torch uses one thread per core, but `cu.ready` gives it one. Why? `index_select` divides its rows among
# the threads, which indexing in NumPy never does. Let's try both, on a quiet machine and while two other programs
# compute.

# %%
NUMBERS = ["one thread", "two threads", "no difference"]
cu.predict(
    "06e", "On two cores, two other programs are busy. Which gathers faster?", choices=NUMBERS
)

# %%
from statistics import median


def epoch_rate(loader, seconds=1.5):
    """Return the events/s of the median epoch, because the effect of other programs counts here."""
    times, end = [], time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        for _ in loader:
            pass
        times.append(time.perf_counter() - start)
    return 40_000 / median(times)


# %%
import subprocess
import sys

BUSY = "import time; end = time.time() + 20\nwhile time.time() < end: pass"


def gather_while_busy(programs, threads):
    others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(programs)]
    torch.set_num_threads(threads)
    try:
        return epoch_rate(Columns(here, [*fields], 1024))
    finally:
        torch.set_num_threads(1)
        for other in others:
            other.kill()
            other.wait()


# %%
rates = {}
for programs in 0, 2:
    for threads in 1, 2:
        rates[programs, threads] = gather_while_busy(programs, threads)
        print(f"programs: {programs}, threads: {threads}, {rates[programs, threads]:,.0f} events/s")

# %%
gain = rates[2, 2] / rates[2, 1]
cu.reveal("06e", NUMBERS[0 if gain < 0.8 else 1 if gain > 1.25 else 2])

# %% [markdown]
# A gather ends with its slowest thread, so if another program runs on a core, all threads wait for the one on this
# core. On our two cores, one thread costs 40 % of the rate while nothing else runs, but while two busy programs ran,
# two threads were three times as slow as one. And in training something else always runs: your loop, or workers.
#
# ## What records buy
#
# Four fields in four files mean four gathers per batch, and four places on the disk per event. A structured array
# stores all fields of an event together, as one *record*. The three lines stay the same, because a column is now a
# view of the one file.

# %%
kinds = [(name, values.dtype, values.shape[1:]) for name, values in fields.items()]
table = np.empty(40_000, np.dtype(kinds, align=True))  # torch needs aligned numbers
for name, values in fields.items():
    table[name] = values
np.save(here / "records.npy", table)

measure("three lines", Columns(here, [*fields], 1024))
records = Columns(here, [*fields], 1024)
table = np.load(here / "records.npy", mmap_mode="c")
records.columns = {name: torch.from_numpy(table[name]) for name in fields}
measure("records", records)

# %% [markdown]
# With a warm cache, records gain nothing. But on emulated Lustre, the data are so large that nothing is in memory
# when the next event is read:

# %%
from course_utils.hardware.storage import VirtualClock, slow_storage

slow = slow_storage(here, "busy Lustre")
clock = VirtualClock(slow)
for names in ["records"], [*fields]:
    files = [slow.open(f"{name}.npy") for name in names]
    slow.reset_counters()
    start = clock()
    for event in range(32):
        slow.drop_caches()
        for file in files:
            row = (file.size - 128) // 40_000  # bytes
            file.seek(128 + 1000 * event * row)
            file.read(row)
    print(f"{slow.counters().requests} requests, {(clock() - start) / 1e9:.2f} s")

# %% [markdown]
# So records pay if an event has many fields and its storage system is slow.
#
# ## Container, codec, layout, access
#
# One lecture compares formats for training like this: *tar shards: high performance. Raw JPEG: not suitable.* Can
# these two be compared at all?
#
# | | The question | Some answers |
# |---|---|---|
# | **container** | Which file is it in? | a file each, zip (npz is one), tar, HDF5, Parquet, SQLite, ROOT |
# | **codec** | How do numbers become bytes? | raw float32, gzip, zstd, JPEG |
# | **layout** | What is stored next to what? | event by event, column by column, in chunks; sorted or mixed |
# | **access** | What do you request? | one event, a random batch, all in order, one column |
#
# No. A tar file is a container and JPEG is a codec, so it's like asking whether a suitcase is better than folding.
# We read the same photographs as files and from a tar file, count the requests and time the decoding.

# %%
import io
import tarfile

from PIL import Image

pictures = sorted(cu.data_path("images").glob("*/*.jpg"))[:200]
with tarfile.open(here / "pictures.tar", "w") as tar:
    for path in pictures:
        tar.add(path, path.name)

as_files, as_tar = counting_storage(pictures[0].parents[1]), counting_storage(here)
jpegs = {"files": [as_files.open(str(path)).read() for path in pictures]}
with as_tar.open("pictures.tar") as file, tarfile.open(fileobj=file, mode="r|", bufsize=2**20) as t:
    jpegs["tar"] = [t.extractfile(member).read() for member in t]
print("files:", as_files.counters())
print("tar:  ", as_tar.counters())

# %%
fastest = {}
for name in ["tar", "files"] * 5:
    start = time.perf_counter()
    for jpeg in jpegs[name]:
        np.asarray(Image.open(io.BytesIO(jpeg)))
    ms = 1e3 * (time.perf_counter() - start) / len(pictures)
    fastest[name] = min(ms, fastest.get(name, ms))
for name, ms in fastest.items():
    print(f"decoding, from {name}: {ms:.2f} ms a picture")

# %% [markdown]
# The tar file saves the opens, which are expensive on a cluster. The decoding takes the same time, so if decoding is
# your bottleneck, no container will help.
#
# Who uses what? Particle physics keeps events in [ROOT](https://root.cern). If your data are ROOT, don't read single
# events: either convert the file once, or read whole clusters of events and mix them in a buffer, as in [notebook
# 14](14_feed_physicists_data.ipynb). Simulations and telescopes use [HDF5](https://www.hdfgroup.org), and climate
# research uses [NetCDF](https://www.unidata.ucar.edu/software/netcdf/), whose version 4 is HDF5 inside.
# [TFRecord](https://www.tensorflow.org/tutorials/load_data/tfrecord), from TensorFlow, is read from start to end
# like a tar file. Tables from anywhere come as [Parquet](https://parquet.apache.org).
#
# ## np.load and its small pieces
#
# One lecture calls npz inefficient, because a volume of 150 MiB is read in pieces of 256 KiB, while HDF5 takes one
# read. Is npz the culprit?

# %%
CULPRITS = ["npz", "np.load", "both"]
cu.predict(
    "06f", "Which of the two makes many small requests, wherever it is used?", choices=CULPRITS
)

# %%
import io

folder = cu.data_path("volumes")
number = max(folder.glob("*.npy"), key=lambda path: path.stat().st_size).stem
WAYS = {
    "npz, np.load": ("npz", lambda file: np.load(file)["volume"]),
    "npy, np.load": ("npy", np.load),
    "npz, read as a whole first": ("npz", lambda file: np.load(io.BytesIO(file.read()))["volume"]),
    "npy, read as a whole first": ("npy", lambda file: np.load(io.BytesIO(file.read()))),
    "HDF5": ("h5", lambda file: h5py.File(file)["volume"][:]),
}


# %%
asked = {}
for name, (ending, read) in WAYS.items():
    storage = counting_storage(folder)
    with storage.open(f"{number}.{ending}") as file:
        megabytes = read(file).nbytes / 2**20
    asked[name] = storage.counters().requests
    print(f"{name:27} {megabytes:4.0f} MiB, requests: {asked[name]:4}")

# %%
small = {name: asked[f"{name}, np.load"] > 10 for name in ("npz", "npy")}
whole = asked["npz, read as a whole first"] > 10
cu.reveal("06f", "np.load" if all(small.values()) and not whole else "npz")

# %% [markdown]
# It's `np.load`. From a path on a local disk, it reads `.npy` in one piece. From a Python file object, such as a
# remote file or a member of a zip file, it reads in pieces of 256 KiB, and if the file is remote, each piece is a
# request. So read the whole file first. HDF5 takes a few requests for its directory, and one for the numbers.
#
# You need only one plane of the volume.


# %%
def npy_plane(file, z):  # read only one plane, float32, after the 128 bytes of the header
    _, height, width = np.load(folder / f"{number}.npy", mmap_mode="r").shape
    file.seek(128 + z * 4 * height * width)
    return np.frombuffer(file.read(4 * height * width), np.float32).reshape(height, width)


PLANES = {
    "npz": lambda file: np.load(file)["volume"][17],
    "npy": lambda file: npy_plane(file, 17),
    "h5": lambda file: h5py.File(file)["volume"][17],
}
for ending, read in PLANES.items():
    storage = counting_storage(folder)
    with storage.open(f"{number}.{ending}") as file:
        read(file)
    print(f"{ending}, a plane: {storage.counters()}")

# %% [markdown]
# In npz, one plane costs the whole volume. Can't we map it?

# %%
from_npz = np.load(folder / f"{number}.npz", mmap_mode="r")["volume"]
from_npy = np.load(folder / f"{number}.npy", mmap_mode="r")
print("npz:", type(from_npz).__name__, "  npy:", type(from_npy).__name__)

# %% [markdown]
# No. `np.load` ignores `mmap_mode` for npz, without a warning. Every `["volume"]` reads the whole array again. So
# don't write this in a `__getitem__` that needs one plane, because it works and you'll never ask why it's slow.
#
# ## The same formats, written differently
#
# Here are five variants: npz and HDF5 with compression, HDF5 with **chunks** of a few events, HDF5 with **misfit
# chunks** (one column of hundreds of events), and Parquet with all events in **one large group**.

# %%
from course_utils.stories.formats_compared import VARIANTS

compare_formats(events, VARIANTS).picture()

# %% [markdown]
# In the last panel, compare the HDF5 files: the container is the same, so the unit decides.
#
# Many ranks can read one HDF5 file without MPI, but some parallel file systems refuse its lock (`unable to lock file`).
# If no program writes the file, pass `locking=False` to `h5py.File`, or set
# [`HDF5_USE_FILE_LOCKING=FALSE`](https://forum.hdfgroup.org/t/rfc-concerning-the-disabling-of-file-locking-in-hdf5/3896).
#
# ## Events of different lengths
#
# Formats like rectangles, but events have different lengths. What if we pad them all to the longest?

# %%
lengths = np.diff(offsets)
padded = len(lengths) * lengths.max()
print(f"longest event: {lengths.max():,} pulses, median: {np.median(lengths):.0f}")
print(f"padded, the file would be {padded / lengths.sum():.0f} times as large")

# %% [markdown]
# Instead, store all pulses one after the other, with **offsets** that contain the start of each event. Our npy, HDF5
# and tar files do this, and Parquet and ROOT do it internally.
#
# The exercise reads through [fsspec](https://filesystem-spec.readthedocs.io), the Python library that gives local
# disks, S3 and HTTP the same interface: `fs.open(path)` returns a file that can `seek` and `read`, wherever it is.
#
# ### Exercise 6.3 · 20 min · ●●●
#
# Write your own format.
#
# - `write_shards` writes 100 events into each file of a folder that exists. The last file may have fewer. A second call
#   overwrites the files.
# - `read_event` returns one event, bit for bit, from any fsspec file system `fs`, even in a new process. Some events have
#   no pulses.
# - One event takes one or two reads, of little more than its own bytes. It takes at most two opens, and no look-up
#   such as `fs.ls` or `fs.exists`. Every file is closed again.
#
# <details><summary>Hint 1</summary>
#
# Begin each file with n + 1 offsets in bytes, as int64. Then write the pulses with `event.tobytes()`.
#
# </details>
# <details><summary>Hint 2</summary>
#
# The start and the end of event i are neighbors in the list, so one `read(16)` returns both. `np.frombuffer` converts
# bytes to numbers.
#
# </details>


# %%
# %%worker_module my_shards
import numpy as np

PER_SHARD = 100


def write_shards(events, folder):
    """Write a list of float32 arrays (n, 4)."""
    ### BEGIN SOLUTION
    for first in range(0, len(events), PER_SHARD):
        some = events[first : first + PER_SHARD]
        sizes = [event.nbytes for event in some]
        offsets = 8 * (len(some) + 1) + np.cumsum([0, *sizes], dtype=np.int64)
        with open(f"{folder}/{first // PER_SHARD:05d}.bin", "wb") as file:
            file.write(offsets.tobytes())
            file.writelines(event.tobytes() for event in some)
    ### END SOLUTION


def read_event(fs, folder, index):
    """Return event `index`, with at most two reads."""
    ### BEGIN SOLUTION
    shard, place = divmod(index, PER_SHARD)
    with fs.open(f"{folder}/{shard:05d}.bin") as file:
        file.seek(8 * place)
        start, stop = np.frombuffer(file.read(16), np.int64).tolist()
        file.seek(start)
        return np.frombuffer(file.read(stop - start), np.float32).reshape(-1, 4)
    ### END SOLUTION


# %%
cu.check("06.3", write_shards, read_event)

# %% [markdown]
# ## When does compression pay?
#
# Compressed data have fewer bytes, so they arrive sooner, but then the CPU must decompress them.

# %%
cu.predict(
    "06g",
    "You read from a fast SSD, and from a network drive with 117 MB/s. Where does zstd help?",
    choices=["both", "SSD only", "network only", "neither"],
)

# %%
from course_utils.stories.formats_compared import BANDWIDTHS, compare_codecs

codecs = compare_codecs(events)
for name, codec in codecs.items():
    print(f"{name}: {codec}")

# %%
from course_utils.stories.figures import drawing

bandwidths = np.geomspace(10, 10_000, 100)  # MB/s: from Wi-Fi to a fast SSD
with drawing(7, 4) as (figure, (panel,)):
    panel.axhline(1, color="gray", linewidth=1, label="raw")
    for (name, codec), line in zip(codecs.items(), ("-", "--", ":"), strict=True):
        panel.plot(bandwidths, codec.cost_at(bandwidths), line, label=name)
    for storage, mb_s in BANDWIDTHS.items():
        panel.axvline(mb_s, color="gray", linewidth=0.5)
        panel.text(mb_s, 1.01, storage, ha="center", transform=panel.get_xaxis_transform())
    panel.set(xscale="log", xlabel="bandwidth of the storage in MB/s (log)")
    panel.set(yscale="log", ylabel="time relative to raw data (log)")
    panel.legend()
figure

# %%
zstd = codecs["zstd"]
faster = [zstd.cost_at(BANDWIDTHS[f"emulated {name}"]) < 1 for name in ("laptop SSD", "NFS")]
answers = {(1, 1): "both", (1, 0): "SSD only", (0, 1): "network only", (0, 0): "neither"}
cu.reveal("06g", answers[tuple(faster)])

# %% [markdown]
# Each curve crosses 1 at the bandwidth where decoding takes as long as reading the saved bytes. So compress if your
# storage system is slower than that. On a fast SSD, and for data in the page cache, don't compress, or use a fast
# codec.
#
# The best compression comes before any codec: **the right type**. A sensor number as int64 takes eight bytes, but
# two are enough for 5,160 sensors, and nothing must be decoded. A wrong type ruins your result, though.

# %%
CHOICES = ["an error", "the nearest number", "another number"]
cu.predict("06h", "What does np.array([70_000]).astype(np.uint16) give?", choices=CHOICES)

# %%
shrunk = np.array([70_000]).astype(np.uint16)
print(shrunk)
cu.reveal("06h", CHOICES[2 if shrunk[0] not in (65_535, 70_000) else 1])

# %% [markdown]
# ### Exercise 6.4 · 5 min · ●○○
#
# Shrink without loss. Return the same numbers as uint16, in a new array of the same shape, or raise ValueError. Refuse
# numbers that are negative, too large, not whole, or not a number at all (NaN). Accept whole numbers that are stored as
# floats, and an empty array.
#
# <details><summary>Hint</summary>
#
# Convert first. Then compare.
#
# </details>


# %%
def to_uint16(values):
    """Return the same numbers as uint16, or raise ValueError."""
    ### BEGIN SOLUTION
    with np.errstate(invalid="ignore"):  # NaN warns; the comparison finds it
        small = values.astype(np.uint16)
    if not np.array_equal(small, values):
        raise ValueError("some numbers do not fit into uint16")
    return small
    ### END SOLUTION


# %%
cu.check("06.4", to_uint16)

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **06e** Tempting: "two threads", because there are two cores. It's one, because a gather ends with its slowest
#   thread. Run it during a video call to show this.
# - **06f** Tempting: npz, because it has the zip. It's `np.load`.
# - **06g** Tempting: both, because there are fewer bytes to read. It's faster on the network only. Ask for the
#   reason before you show the picture.
# - **06h** Ask who expects an error. The result is another number, without a warning.
#
# **Goes wrong.**
#
# - In 6.3 it's easy to read the whole list of offsets for one event. Two of its numbers are enough.
# - In 6.4 NaN passes, or an empty array doesn't. Compare the output with the input.
#
# **Extra.** All of it is good homework, especially exercise 6.3.
