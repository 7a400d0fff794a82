# %% [markdown]
# # 06 · Choose a file format
#
# **You will do:** count what twelve file formats ask of a storage, and climb from the slowest loader to the fastest.
#
# **You will learn**
#
# - that container, codec, layout and access pattern are four different things,
# - to ask of any format what must be read to get at one event,
# - what npz, HDF5, Parquet, SQLite, tar and ROOT are good for, and what each is bad at,
# - when compression pays, and how to keep events of different lengths.
#
# **You need:** notebooks 01 and 04. A CPU is enough. **Minutes:** {minutes}.

# %%
import course_utils as cu

cu.ready("06")

# %% [markdown] tags=["instructor"]
# **Instructor: plan.** Four things (4), table (8), npz (4), columns and indexes (6), 6.1 (5), chunks and
# 6.2 (8), ragged and 6.3 (8), compression and 6.4 (6), climb (6). In the 90 minute path: table and climb only.
# Short of time: 6.3 is good homework.
#
# **Board.** A rectangle, events from top to bottom, columns from left to right. Cut it into rows, into columns, into
# tiles. Ask for one event, then for one column, and shade what must be read. This is the whole notebook.
#
# **What goes wrong.** On a machine that others use the measured times scatter; the counts do not.

# %% [markdown]
# ## Four different things
#
# A lecture compares formats for training: *tar shards: high performance. Raw JPEG: not suitable.* Can that be
# compared?
#
# | | The question | Some answers |
# |---|---|---|
# | **container** | In which file is it? | a file each, zip (that is npz), tar, HDF5, Parquet, SQLite, ROOT |
# | **codec** | How do numbers become bytes? | raw float32, gzip, zstd, JPEG |
# | **layout** | What lies beside what? | event by event, column by column, in chunks; sorted or mixed |
# | **access** | What do you ask for? | one event, a random batch, all in order, one column |
#
# JPEG is a codec, tar a container. Here are the same photographs as files and in a tar file. We count what reading takes, on
# a storage that only counts, and time the decoding.

# %%
import io
import tarfile
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from course_utils.hardware.storage import counting_storage

# for all that this notebook writes; it goes when the kernel ends
room = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
here = Path(room.name)
pictures = sorted(cu.data_path("images").glob("*/*.jpg"))[:200]
with tarfile.open(here / "pictures.tar", "w") as tar:
    for path in pictures:
        tar.add(path, path.name)

# %%
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
# The tar file saves the opens, which on a cluster is a lot. The decoding stays what it is: a tar of JPEGs is still
# JPEG. If decoding is your bottleneck, no container will help.
#
# ## What must be read to get at one event?
#
# Every format has a **unit**: the least that can be read. The file of an event. A chunk. A row group with 256 events.
# A page. What you want of it is your affair; the storage delivers units.

# %%
FORMATS = ["npz", "npy", "hdf5", "parquet", "sqlite", "tar", "root"]
cu.predict(
    "06a", "Files are open already. Which takes the most requests for one event?", choices=FORMATS
)

# %%
cu.predict(
    "06b",
    "64 random events on busy Lustre: how many times longer takes a file for each (npz) than one "
    "large file (npy)?",
    unit="times",
)

# %%
from notebooks.stories.formats_compared import compare_formats

events = cu.data_path("events", "S")  # the small set: 2,000 events
formats = compare_formats(events)
formats.picture()

# %%
formats

# %%
asked = {name: formats.cost(name, "emulated S3", "one event").requests for name in FORMATS}
cu.reveal("06a", max(asked, key=asked.get))

# %%
npz, npy = (formats.cost(name, "emulated busy Lustre", "random").seconds for name in ("npz", "npy"))
cu.reveal("06b", npz / npy)

# %% [markdown]
# Read the picture from the unit. **npz** and **npy** bring one event with one request; npz must open a file first, and that
# is the small-file problem. **tar** finds an event in one go, if it has an index. **Parquet** and compressed
# HDF5 read a group or a chunk, and throw most of it away. **SQLite** walks down a tree of small pages, one
# request after the other. **ROOT** reads a basket for each column.
#
# In order, nearly all are good: what one event throws away, the next one uses. *Read whole units, and any format is
# fast.* A random batch on Lustre shows the other way out: Parquet reads everything, and everything is small here. The
# amplification says what that means for a terabyte.
#
# ## npz: a zip file in disguise
#
# A lecture: npz is inefficient, since a volume of 150 MiB is read in pieces of 256 KiB, and HDF5 takes one
# read. Let us count.

# %%
cu.predict(
    "06c", "How many requests does np.load take for 150 MiB in an npz file?", unit="requests"
)

# %%
from course_utils.loading.images import Volumes

folder = cu.data_path("volumes")
requests = {}
for form in "npz", "npy", "h5":
    storage = counting_storage(folder)
    volumes = Volumes(folder, form, fs=storage)
    storage.reset_counters()
    volume = volumes[-1]  # the largest
    requests[form] = storage.counters().requests
    print(f"{form}, {volume.nbytes / 2**20:.0f} MiB:", storage.counters())
    storage.reset_counters()
    volumes.plane(-1, 17)
    print(f"{form}, a plane:", storage.counters())

# %%
others = requests["npz"] - volume.nbytes // 2**18  # for the directory of the zip file
cu.reveal("06c", 150 * 2**20 // 2**18 + others)

# %% [markdown]
# True, then. But *npz against HDF5* is not the reason: plain `.npy` can be read in one go. What `np.load` reads
# through a Python file, such as a member of a zip file, it reads in pieces of 256 KiB, and zip computes a checksum
# on the way. The container is to blame, not the numbers in it.
#
# And one plane costs the whole volume. Can we not map it?

# %%
from_npz = np.load(folder / "000.npz", mmap_mode="r")["volume"]
from_npy = np.load(folder / "000.npy", mmap_mode="r")
print("npz:", type(from_npz).__name__, "  npy:", type(from_npy).__name__)

# %% [markdown]
# `mmap_mode` is ignored for npz, without a word. Everything is read, each time that you write
# `arrays["volume"]`. Never do that in `__getitem__`.
#
# ## Columns, statistics and an index
#
# **Parquet** lies column by column, in row groups, and keeps minimum and maximum of each. Somebody wants the
# charges of all pulses; somebody else one event, by its id.

# %%
cu.predict(
    "06d",
    "A filter asks a Parquet file for one event_id out of 2,000. How much of the file is read?",
    unit="%",
)

# %%
import pyarrow.parquet as pq

from course_utils.loading.events import read_labels

some_id = int(read_labels(events).event_id[777])
size = (events / "pulses.parquet").stat().st_size
questions = {
    "one column": {"columns": ["charge"]},
    "bright pulses": {"columns": ["charge"], "filters": [("charge", ">", 100)]},
    "one event": {"filters": [("event_id", "=", some_id)]},
}
shares = {}
for name, question in questions.items():
    storage = counting_storage(events)
    rows = len(pq.read_table("pulses.parquet", filesystem=storage, **question))
    shares[name] = 100 * storage.counters().bytes_read / size
    print(f"{name:14} {rows:7,} pulses, {shares[name]:4.0f} % of the file read")

# %%
cu.reveal("06d", shares["one event"])

# %% [markdown]
# A column costs a column: here Parquet is at its best. A filter skips the groups whose minimum and maximum rule them
# out. That works for the charge, since the file is sorted by energy. It does nothing for the ids: each group has
# small and large ones. *Push-down is no random access.*
#
# **SQLite** has random access: if there is an index.

# %%
import shutil
import sqlite3
from contextlib import closing

from course_utils.loading.events import EventArrays, connect, write_sqlite

(here / "index.db").unlink(missing_ok=True)  # where this cell is run again
write_sqlite(EventArrays.load(events), here / "index.db")
shutil.copy(here / "index.db", here / "no index.db")
with closing(sqlite3.connect(here / "no index.db")) as database:
    database.execute("DROP INDEX pulses_of_event")

for name in "index", "no index":
    storage = counting_storage(here)
    database = connect(f"{here}/{name}.db", storage)
    rows = database.execute("SELECT charge FROM pulses WHERE event_row = 777").fetchall()
    print(f"{name:8}  {len(rows)} pulses:  {storage.counters()}")

# %% [markdown]
# The index is a tree of pages. Of a million events it is one or two pages higher; without it, every page is read.
#
# Who uses what? Particle physics keeps events in **ROOT**: column by column, in baskets. Simulations and telescopes use
# **HDF5**; tables from anywhere come as **Parquet**.
#
# ### Exercise 6.1 · 5 min · ●○○
#
# One of `FORMATS` for each case, as they were above: the Parquet with row groups of 256 events, the tar with an
# index of its own, the HDF5 in one piece. The check reads, counts, and compares requests (opens included) and bytes with
# a good choice.
#
# - `training`: random events, one here and one there, from busy Lustre
# - `histogram`: the charges of all pulses, and nothing else
# - `display`: one event by its id, among a million, files just opened
# - `one_pass`: all events once, in order, from S3
#
# <details><summary>Hint</summary>
#
# Four units: an event, a column, a page of a tree, a long piece. Several formats may be right.
#
# </details>

# %%
training = "npy"  ### SOLUTION
histogram = "parquet"  ### SOLUTION
display = "sqlite"  ### SOLUTION
one_pass = "tar"  ### SOLUTION

cu.check("06.1", training, histogram, display, one_pass)

# %% [markdown] tags=["instructor"]
# **Instructor.** 06a: most say SQLite; ROOT reads a basket for each of four columns. In 06b the guesses span two
# orders of magnitude; let somebody compute it: an open and a request, against requests that merge. 06d: nearly all
# say less than a tenth.
#
# In 6.1 many take HDF5 for everything, since it "is the standard". For `one_pass` nearly every answer is right: say
# so, it is the point.

# %% [markdown]
# ## HDF5: cut it as you read it
#
# HDF5 stores a table in one piece, or in **chunks** of a shape that you choose. With compression or checksums a chunk is
# read whole, or not at all. We read 200 random events out of four chunkings, with two sizes of HDF5's
# chunk cache.

# %%
import h5py

pulses = np.load(events / "npy" / "pulses.npy")  # a row per pulse, four columns
offsets = np.load(events / "npy" / "offsets.npy")


def read_some(chunks, cache_mb):
    with h5py.File(here / "chunks.h5", "w") as file:
        made = file.create_dataset("pulses", data=pulses, chunks=chunks, compression="gzip").chunks
    storage, wanted = counting_storage(here), 0
    with storage.open("chunks.h5") as raw, h5py.File(raw, rdcc_nbytes=cache_mb * 10**6) as file:
        table = file["pulses"]  # the cache is that of this object, and goes with it
        for event in np.random.default_rng(0).permutation(len(offsets) - 1)[:200]:
            wanted += table[offsets[event] : offsets[event + 1]].nbytes
    counted = storage.counters()
    return made, counted.requests, counted.bytes_read / wanted


# %%
print("chunks          cache   requests   bytes read for each byte")
for chunks in (256, 4), (65536, 4), (65536, 1), True:
    for cache_mb in 1, 64:
        made, requests, amplification = read_some(chunks, cache_mb)
        print(f"{made!s:14} {cache_mb:3} MB {requests:10} {amplification:15.1f}")

# %% [markdown]
# Chunks of a few events: fine. Large ones are read, inflated and thrown away for every event; one per column,
# four times. The last is what h5py chooses for `chunks=True`: it cuts across the events.
#
# With a cache that holds the *whole* file all are good: each chunk is read once. Real files are larger than any cache, so
# do not trust a small test.
#
# ### Exercise 6.2 · 6 min · ●●○
#
# A volume of 64 × 192 × 192 voxels. A network reads **slabs** of four neighbouring planes, `volume[z : z + 4]`; another
# reads **cubes** of 48 voxels along each axis, from anywhere. One file for both, and no chunk cache: choose a chunk
# shape (z, y, x) so that either <!-- given -->
#
# - reads at most 2 times the bytes that it wants, <!-- given -->
# - and takes at most 400 requests.
#
# <details><summary>Hint 1</summary>
#
# Along one axis, a chunk of c and a read of r touch about (r + c) / r times the bytes. Along three axes the factors multiply.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Start with the slab: how many planes may a chunk have? Then make y and x as large as the cube allows.
#
# </details>

# %%
from notebooks.stories.chunk_trial import try_chunks

print(try_chunks((1, 192, 192)))
print(try_chunks(True))  # h5py chooses

# %%
chunks = (4, 16, 16)  ### SOLUTION

cu.check("06.2", chunks)

# %% [markdown]
# ## Events of different lengths
#
# Formats like rectangles, and events are ragged. Padding all to the longest:

# %%
lengths = np.diff(offsets)
padded = len(lengths) * lengths.max()
print(f"longest event: {lengths.max():,} pulses, median: {np.median(lengths):.0f}")
print(f"padded, the file would be {padded / lengths.sum():.0f} times as large")

# %% [markdown]
# Better: all pulses one behind the other, and **offsets** that say where each event begins. Our npy, HDF5 and tar do
# that, Parquet and ROOT inside.
#
# ### Exercise 6.3 · 9 min · ●●●
#
# Write a format. `write_shards` puts 100 events into each file; `read_event` gets any of them back,
# bit for bit, from any fsspec file system `fs`, with at most two reads. Some events have no pulses. The last
# shard may be short.
#
# <details><summary>Hint 1</summary>
#
# Begin each file with n + 1 offsets in bytes, as int64. Then the pulses, `event.tobytes()`.
#
# </details>
# <details><summary>Hint 2</summary>
#
# The offsets of event i and of its end stand side by side: one `read(16)` has both. `np.frombuffer` makes numbers
# of bytes.
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
# Fewer bytes arrive sooner, and then have to be inflated.

# %%
cu.predict(
    "06e",
    "gzip on a fast SSD and on a network drive of 117 MB/s: where is reading faster with it?",
    choices=["both", "SSD only", "network only", "neither"],
)

# %%
from notebooks.stories.formats_compared import compare_codecs

codecs = compare_codecs(events)
codecs.picture()

# %%
codecs

# %%
faster = [codecs.ratio("gzip", f"emulated {name}") < 1 for name in ("laptop SSD", "NFS")]
answers = {(1, 1): "both", (1, 0): "SSD only", (0, 1): "network only", (0, 0): "neither"}
cu.reveal("06e", answers[tuple(faster)])

# %% [markdown]
# Each curve crosses 1 at the bandwidth where decoding takes as long as the saved bytes would. A slow network: compress. A
# fast SSD, or data that are in the page cache anyway: do not, or take a fast codec.
#
# The best compression comes before any codec: **the right type**. Sensor numbers as int64 are eight bytes each; two are
# enough for 5,160 sensors. It costs nothing to read. If it is done wrong, it costs the result.

# %%
CHOICES = ["an error", "the nearest number", "another number"]
cu.predict("06f", "What does np.array([70_000]).astype(np.uint16) give?", choices=CHOICES)

# %%
shrunk = np.array([70_000]).astype(np.uint16)
print(shrunk)
cu.reveal("06f", CHOICES[2 if shrunk[0] not in (65_535, 70_000) else 1])

# %% [markdown]
# ### Exercise 6.4 · 4 min · ●○○
#
# Shrink without loss: return the same numbers as uint16, or raise ValueError. Refuse what is negative, too
# large, no whole number, or no number at all (NaN). Whole numbers held as floats are welcome; so is an empty array.
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

# %% [markdown]
# ## The climb
#
# 40,000 events of 128 pulses, warm in the page cache, shuffled. We start where most begin, with an npz for each event (1,000
# of them), and go up. The data stay the same; what changes is the unit, and how often Python runs.

# %%
cu.predict(
    "06g", "How many times faster than npz per event can one process load them?", unit="times"
)

# %%
import torch

from course_utils.loading.records import RecordLoader, write_records

rng = np.random.default_rng(0)
fields = {
    "pulses": rng.random((40_000, 128, 4), np.float32),
    "direction": rng.random((40_000, 3), np.float32),
    "energy": rng.random(40_000, np.float32),
    "event_id": np.arange(40_000),
}
write_records(here / "records.npy", fields)
(here / "npz").mkdir(exist_ok=True)
for event in range(1000):
    one = {name: values[event] for name, values in fields.items()}
    np.savez(here / "npz" / f"{event}.npz", **one)


# %%
# %%worker_module climb
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

ladder = {}


def climb(name, loader):
    """Load epochs for a second and keep the fastest: other programs only make it slower."""
    seconds = []
    while len(seconds) < 3 or sum(seconds) < 1:
        start = time.perf_counter()
        ids = torch.cat([batch["event_id"].clone() for batch in loader])
        seconds.append(time.perf_counter() - start)
    ladder[name] = len(ids) / min(seconds)
    ledger = f"{len(ids):,} served, {len(ids.unique()):,} distinct"
    print(f"{name}: {ladder[name]:,.0f} events/s, {ledger}")


climb("npz per event", DataLoader(FileEach(here / "npz", 1000), 256, shuffle=True))

# %% [markdown]
# The first step: one file, mapped. No opens, no zip; the map is opened in each process by itself, as in
# notebook 04.


# %%
# %%worker_module climb_mapped
import numpy as np
from torch.utils.data import Dataset

from course_utils.loading.workers import LazyFile

FIELDS = "pulses", "direction", "energy", "event_id"


class Mapped(Dataset):
    def __init__(self, path, count):
        self.count, self.table = count, LazyFile(np.load, path, mmap_mode="r")

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        row = self.table.file[index]
        return {name: np.array(row[name]) for name in FIELDS}


# %%
climb("npy, mapped", DataLoader(Mapped(here / "records.npy", 40_000), 1024, shuffle=True))

# %% [markdown]
# The second: Python runs once for a batch, not once for an event, and nothing is left to collate.


# %%
# %%worker_module climb_batched
import torch
from climb_mapped import FIELDS, Mapped


class Batched(Mapped):
    def __getitems__(self, indices):
        rows = self.table.file[indices]  # one call of numpy for the whole batch
        return {name: torch.from_numpy(rows[name]) for name in FIELDS}


def as_it_is(batch):
    return batch


# %%
whole_batches = Batched(here / "records.npy", 40_000)
options = {"batch_size": 1024, "shuffle": True, "collate_fn": as_it_is}
climb("whole batches", DataLoader(whole_batches, **options))

# %% [markdown]
# The third: numpy gathers rows that have fields more slowly than plain numbers. To `RecordLoader` a record is a row of
# 8-byte words, until it has gathered a batch of them, into a buffer that it uses again. It also compares a checksum of each
# record. Read it: `course_utils/loading/records.py`.

# %%
climb("record loader", RecordLoader(here / "records.npy", 1024))

# %%
import matplotlib.pyplot as plt

plt.style.use("course_utils.plots")  # readable on light and on dark pages
figure, panel = plt.subplots(figsize=(7, 2.2), layout="constrained")
times = [rate / ladder["npz per event"] for rate in ladder.values()]
panel.plot(times, list(ladder), "o-")
for name, ratio in zip(ladder, times, strict=True):
    panel.annotate(f"{ratio:,.0f}", (ratio, name), (8, -4), textcoords="offset points")
panel.set(xscale="log", xlim=(0.7, 8000), xlabel="times as many events/s as npz per event")
panel.set_ylim(3.4, -0.4)  # the first rung on top
plt.close()  # the next line shows the figure; without this it would be shown twice
figure

# %%
cu.reveal("06g", ladder["record loader"] / ladder["npz per event"])

# %% [markdown]
# A ledger stands beside each figure: as many served as distinct, or the figure is void. And the GPU? It takes 20 ms for a <!-- given -->
# batch of 128, a small model.

# %%
from itertools import islice

from course_utils.measure.picture import Timeline


def train(loader):
    gpu = cu.get_accelerator(step_ms=20)
    with cu.record() as trace:
        for batch in islice(trace.batches(loader, ids="event_id"), 7):
            gpu.step(gpu.upload(batch)).item()
    return trace


npz = train(DataLoader(FileEach(here / "npz", 1000), 128, shuffle=True))
records = train(RecordLoader(here / "records.npy", 128))
Timeline({"npz per event": npz, "record loader": records})

# %% [markdown]
# No worker, no prefetching, and the gaps are slivers. Would workers make it better still?

# %%
cu.predict(
    "06h",
    "The loader of whole batches gets two workers. How many times as many events/s does it load?",
    unit="times",
)

# %%
climb("two workers", DataLoader(whole_batches, num_workers=2, persistent_workers=True, **options))
cu.reveal("06h", ladder["two workers"] / ladder["whole batches"])

# %% [markdown]
# Fewer. To move a batch from one process to another costs more than to make it. Workers pay where a batch takes long to
# make: decoding, waiting. First choose the format, then count what is left for workers.

# %% [markdown] tags=["instructor"]
# **Instructor.** 06e: ask why before the picture. 06f: a third expects an error. 06g: hardly anybody
# says more than 50. In 06h most say 2.

# %% [markdown]
# ## You now can
#
# - tell container, codec, layout and access apart,
# - name the unit of a format, and count what an access costs with it,
# - choose chunks, row groups, an index or offsets to fit how you read,
# - say when compression pays, shrink types without loss, and load events hundreds of times faster.
#
# Next: where the bytes lie. Page cache, memory, /dev/shm.
