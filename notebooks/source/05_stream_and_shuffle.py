# %% [markdown]
# # 05 · Stream with IterableDataset and shuffle well
#
# **You will do:** find out why more workers serve the same events again, and mix a file that is sorted.
#
# **You will learn**
#
# - what an `IterableDataset` asks of you, and what happens if you do not know,
# - who serves what: the share of a worker of a rank, and an honest length,
# - what a batch costs if it comes from one place on disk, and what if it comes from many,
# - four ways to shuffle, and how to measure what they are worth.
#
# **You need:** notebooks 01 and 02. A CPU is enough. **Minutes:** {minutes}.

# %%
import course_utils as cu

cu.ready("05")

# %% [markdown] tags=["instructor"]
# **Instructor: plan.** Duplicates and 5.1 (12), length and second epoch (6), one place or many (5),
# shuffles and 5.2 (16), memory (3), threads and 5.3 (8). In the 90 minute path: only up to 5.1.
# Short of time: leave out the second epoch and 5.3, which is good homework.
#
# **Board.** A sorted file as a long bar, low energies left. Below it a buffer, a tenth as long, that
# slides from left to right. Ask: which two events can never sit in one batch? That is the heat map.
#
# **What goes wrong.** Under spawn (macOS, Windows) each loop with workers takes some seconds to start.
# If somebody interrupts one: `cu.cleanup_workers()`.

# %% [markdown]
# ## Data without numbers
#
# A map-style dataset answers one question: *what is event 4711?* Some data cannot: a socket, a compressed
# tar file, a detector that is taking data, a thousand files far away. They can be read from the front
# only. For them there is `IterableDataset`, and its contract is one method: `__iter__` yields samples.
#
# No index, so no sampler, no `shuffle=True`, and `len` only if you know it. *Who* reads what, and in which
# *order*, is up to you. These are the two halves of this notebook.
#
# PolarBERT, a published model, is pre-trained on IceCube events with such a dataset. Ours behaves like
# it, in fewer lines: it cuts the file into batches, from a random offset on, and shuffles the batches.
# Read it. What is wrong?


# %%
# %%worker_module polar_like
import numpy as np
from torch.utils.data import IterableDataset


class PolarLike(IterableDataset):
    def __init__(self, event_id, batch_size):
        self.event_id, self.batch_size = event_id, batch_size

    def __len__(self):  # in batches, since __iter__ yields whole batches
        return len(self.event_id) // self.batch_size - 1

    def __iter__(self):
        last = len(self.event_id) - self.batch_size
        starts = np.arange(np.random.randint(self.batch_size), last + 1, self.batch_size)
        np.random.shuffle(starts)
        for start in starts:
            yield self.event_id[start : start + self.batch_size]


# %%
cu.predict(
    "05a",
    "The file has 1,024 events, a batch 64. How many events does one epoch with four workers serve?",
    unit="events",
)

# %%
import torch
from torch.utils.data import DataLoader

gpu = cu.get_accelerator(step_ms=2)


def train(loader):
    with cu.record() as trace:
        for batch in trace.batches(loader, ids=lambda batch: batch):
            gpu.step(gpu.upload(batch)).item()
    return trace.summary()


# %%
events = torch.arange(1024)
epochs = {}
for workers in 0, 2, 4:
    loader = DataLoader(PolarLike(events, 64), batch_size=None, num_workers=workers)
    epochs[workers] = train(loader)

# %%
import matplotlib.pyplot as plt

plt.style.use("course_utils.plots")  # readable on light and on dark pages
figure, panel = plt.subplots(figsize=(7, 2.2), layout="constrained")
names = [f"{workers} workers" for workers in epochs]
panel.barh(names, [s.samples for s in epochs.values()], fc="none", ec="C1", hatch="///")
panel.barh(names, [s.distinct for s in epochs.values()], color="C0", height=0.5)
panel.set(xlabel="events: served (hatched), distinct (solid)")
panel.invert_yaxis()
plt.close()  # the next line shows the figure; without this it would be shown twice
figure

# %%
cu.reveal("05a", epochs[4].samples)

# %% [markdown]
# Every worker has its own copy of the dataset, and runs the whole `__iter__`: four workers, four epochs
# in one. A benchmark reports four times the events. The model sees the same ones again, and a schedule
# that counts epochs runs four times too slow.
#
# We counted the same on PolarBERT's own class and 1,024 events: 1, 2 and 4 workers serve 960, 1,920 and 3,840
# events, of which 960, 999 and 1,015 differ. Its README says "tested with num_workers: 1", and not why.
#
# The ledger of the summary is how you notice:

# %%
print(epochs[4])
print("len(loader):", len(loader))

# %% [markdown]
# Nobody warned us, and `len(loader)` looks right. torch has a warning: it compares the number of *batches* with
# `len(dataset)`, if someone has asked for `len(loader)` before the loop. But if a dataset yields single
# events, there are fewer batches than events, and it never comes.
#
# ## Take a share
#
# Inside a worker, `get_worker_info()` knows its number, and how many there are. In the main process it
# returns `None`. The usual cure deals out the items like cards. One thing is easily missed: the workers must
# agree on the order *before* they deal. `np.random` differs from worker to worker; a seed made from the
# epoch does not.


# %%
# %%worker_module polar_mended
import numpy as np
from polar_like import PolarLike
from torch.utils.data import get_worker_info


class PolarMended(PolarLike):
    epoch = 0

    def __iter__(self):
        rng = np.random.default_rng(self.epoch)  # the same in every worker
        last = len(self.event_id) - self.batch_size
        starts = np.arange(rng.integers(self.batch_size), last + 1, self.batch_size)
        rng.shuffle(starts)
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        for start in starts[first::step]:
            yield self.event_id[start : start + self.batch_size]


# %%
mended = DataLoader(PolarMended(events, 64), batch_size=None, num_workers=2)
print(train(mended))

# %% [markdown]
# With several GPUs there is one process for each, a **rank**, and each rank has workers of its own. The
# places among which a stream is divided are all workers of all ranks.
#
# ### Exercise 5.1 · 7 min · ●●○
#
# Divide `self.shards` (a list; each shard is an iterable of events) among all places. Every event exactly
# once, for any number of ranks and of workers, none included; also if there are fewer shards than places. No
# place opens a shard that is not its own.
#
# <details><summary>Hint 1</summary>
#
# Number the places: rank 0 has the places 0 to W − 1, rank 1 the next W. How many are there in all?
#
# </details>
# <details><summary>Hint 2</summary>
#
# `list[first::step]` deals out cards: it starts at `first` and takes every `step`-th. No workers means
# one place in each rank.
#
# </details>


# %%
# %%worker_module shard_stream
from torch.utils.data import IterableDataset, get_worker_info


class ShardStream(IterableDataset):
    def __init__(self, shards, rank=0, world_size=1):
        self.shards, self.rank, self.world_size = shards, rank, world_size

    def __iter__(self):
        ### BEGIN SOLUTION
        worker = get_worker_info()
        id_, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        place = self.rank * workers + id_
        for shard in self.shards[place :: self.world_size * workers]:
            yield from shard
        ### END SOLUTION


# %%
cu.check("05.1", ShardStream)

# %% [markdown]
# The course has this ready: `split(shards, Place.here())`, in
# `course_utils.loading.stream.shuffling`.
#
# ## How long is an epoch?
#
# Now every worker has its share. It makes batches of its own events, and of its own only.

# %%
# %%worker_module some_numbers
import numpy as np
from torch.utils.data import IterableDataset

from course_utils.loading.stream import Place, split


class Numbers(IterableDataset):
    epoch = 0

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __iter__(self):
        order = np.random.default_rng(self.epoch).permutation(self.count)
        yield from split(order, Place.here())


# %%
cu.predict(
    "05b",
    "100 numbers in batches of 16 with drop_last=True, and four workers that share them rightly. "
    "How many numbers does an epoch serve?",
    unit="numbers",
)

# %%
for workers in 0, 4:
    loader = DataLoader(Numbers(100), batch_size=16, drop_last=True, num_workers=workers)
    served = sum(len(batch) for batch in loader)
    print(f"{workers} workers: {served:3} numbers served, len(loader) = {len(loader)}")

# %%
cu.reveal("05b", served)

# %% [markdown]
# Each worker makes batches of its own 25 numbers: one full batch, and a tail of nine that is dropped. Four
# workers drop four tails, and `len(loader)` knows nothing of it. Between ranks it is worse: the one
# with more batches waits for the others for ever.
#
# Two honest ways: count (`count_batches` of our streams, in `course_utils.loading.stream.streams`), or let the stream
# repeat for ever and say how many steps an epoch shall have: `islice(loader, steps)`.
#
# ### The second epoch
#
# `persistent_workers=True` saves the start of the workers in every epoch. The order of `Numbers` depends on its
# `epoch`. Before each epoch we set it: `numbers.epoch = epoch`.

# %%
CHOICES = ["a new one in each epoch", "the same one in each epoch"]
cu.predict("05c", "Which order do three epochs with persistent workers have?", choices=CHOICES)

# %%
numbers = Numbers(100)
loader = DataLoader(numbers, batch_size=8, num_workers=2, persistent_workers=True)
firsts = []
for epoch in range(3):
    numbers.epoch = epoch
    batches = [batch.tolist() for batch in loader]
    firsts.append(batches[0])
    print(f"epoch {epoch} begins with", *batches[0])

# %%
cu.reveal("05c", CHOICES[firsts[0] == firsts[1]])

# %% [markdown]
# We changed *our* copy of the dataset. The workers keep the copies that they got when they started. A number in
# shared memory reaches them: `SharedEpoch` in `course_utils.loading.workers` is one. The stream of
# events that comes with the course uses it. It reads contiguous *shards* of a file:

# %%
from course_utils.loading.events import pad_collate
from course_utils.loading.stream import EventShards

folder = cu.data_path("events", "S")  # the small set: 2,000 events, sorted by energy
stream = EventShards(folder, shards=20, buffer=100)
loader = DataLoader(
    stream, batch_size=32, num_workers=2, persistent_workers=True, collate_fn=pad_collate
)
for epoch in range(3):
    stream.set_epoch(epoch)
    batches = list(loader)
    print(f"epoch {epoch} begins with", *batches[0]["event_id"][:8].tolist())

# %% [markdown] tags=["instructor"]
# **Instructor.** 05a: a third of the room says 1,024, a third 960, and those who know say 3,840. Some will
# see 3,904: a worker whose random offset is 0 has one batch more. 05b: most say 96. Draw four boxes of
# 25 with 16 crossed out. In 05c most take the new order for granted.

# %% [markdown]
# ## One place or many
#
# Now the order. A lecture draws two ways to fill a batch: from *one* file, or a little from each of several.
# The first takes one request, the second one for each place. On a network drive that counts; ours takes 10 ms
# for a request. <!-- given -->

# %%
from itertools import islice

import numpy as np


def lustre():
    return cu.slow_storage(folder, "busy Lustre", cache_mb=0)


one_place = EventShards(folder, shards=20, interleave=1, chunk=32, buffer=1, fs=lustre())
many_places = EventShards(folder, shards=20, interleave=16, chunk=2, buffer=1, fs=lustre())

cu.predict(
    "05d",
    "A step takes 20 ms. How many times longer does an epoch take if each batch comes from 16 "
    "places instead of one?",
    unit="times",
)


# %%
def run(stream, steps=16):
    gpu = cu.get_accelerator(step_ms=20)
    loader = DataLoader(stream, batch_size=32, collate_fn=pad_collate)
    energies = []
    with cu.record() as trace:
        for batch in islice(trace.batches(loader, ids="event_id"), steps):
            gpu.step(gpu.upload(batch)).item()
            energies.append(float(batch["energy"].mean()))
    return trace, energies


# %%
from course_utils.measure.picture import Timeline

one, one_energies = run(one_place)
many, many_energies = run(many_places)
Timeline({"one place": one, "16 places": many})

# %%
cu.reveal("05d", many.summary().total_s / one.summary().total_s)

# %%
print("one place:", one_place.events.fs.counters())
print("16 places:", many_places.events.fs.counters())

# %% [markdown]
# One place is the cheap way. Now look at what is in its batches.

# %%
energy = one_place.events.labels.energy
figure, panel = plt.subplots(figsize=(7, 2.6), layout="constrained")
ideal = energy.std() / 32**0.5
panel.axhspan(energy.mean() - 2 * ideal, energy.mean() + 2 * ideal, color="#808080", alpha=0.3)
panel.plot(one_energies, "o-", label="one place")
panel.plot(many_energies, "s--", label="16 places")
panel.set(xlabel="step", ylabel="mean energy\nof a batch (log10 GeV)")
panel.legend()
plt.close()
figure

# %% [markdown]
# 95 of 100 fully shuffled batches lie in the grey band. A batch from one place is a batch of one energy:
# 32 events, and hardly more information than one. (From 16 places it is steadier than chance: each gives two
# events to each batch.)
#
# But who says that a request must bring only what the next batch needs? Read *long* pieces of *many* places,
# hold them in memory, and draw from there. Every shuffle of a stream does that. It buys little scatter with
# few requests, and pays with memory.

# %%
both = EventShards(folder, shards=20, interleave=16, chunk=32, buffer=100, fs=lustre())
held, held_energies = run(both)
print(both.events.fs.counters())
print(f"scatter of the batch means: {np.std(held_energies) / ideal:.1f} times the ideal")
Timeline({"one place": one, "16 places": many, "long pieces of 16": held})

# %% [markdown]
# ## Four ways to shuffle
#
# - **offline**: write the file again, in random order, once;
# - **shard**: read the shards in random order, each from front to back;
# - **block**: read small pieces in random order, and shuffle a few of them together;
# - **buffer**: hold some samples, and give away a random one for each that comes in.
#
# How good is a shuffle? Look at the mean energy of each batch, and at how much these means scatter. The ideal is
# a full shuffle: sigma / sqrt(batch size). `mixing` measures that, and counts *who sits with whom*.

# %%
cu.predict(
    "05e",
    "A buffer holds a tenth of the file, which is sorted. How many times as much as in a full "
    "shuffle do the batch means scatter?",
    unit="times",
)

# %%
from itertools import chain

from course_utils.loading.stream import BlockSampler, blocks, buffer_shuffle, shuffled

n, rng = len(energy), np.random.default_rng(0)
shards = blocks(n, 100)  # 20 runs of 100 events, in the order on disk
ways = {  # name: the order, and how many events are held in memory
    "in order": (range(n), 0),
    "shard": ([*chain(*shuffled(shards, rng))], 0),
    "buffer": ([*buffer_shuffle(range(n), 200, rng)], 200),
    "shard + buffer": ([*buffer_shuffle(chain(*shuffled(shards, rng)), 200, rng)], 200),
    "block": (BlockSampler(n, 10, together=20), 200),
    "offline": (rng.permutation(n), 0),
}

# %%
from course_utils.loading.stream import batched, draw_together, mixing

quality = {
    name: mixing(batched(order, 32), energy, blocks=20, memory=memory)
    for name, (order, memory) in ways.items()
}
draw_together(quality)

# %%
cu.reveal("05e", quality["buffer"].ratio)

# %% [markdown]
# Each picture is the file against itself, low energies at the top left. Yellow: these events often share a batch;
# an even green is what we want. A buffer alone makes the diagonal a little wider: an event moves by
# about the length of the buffer, and no farther.
#
# A lecture says that a buffer is adequate for most tasks. That depends on the order on disk: on this file it is no
# better than none. On a file that was shuffled *once*, reading in order is already ideal, and a shard
# shuffle makes every epoch different. This is the cheap answer: it costs one copy of the data.
#
# Does a model care? A small network guesses the energy from the light, and we watch its error on 400 held-out
# events during four epochs.

# %%
from notebooks.stories.small_training import held_out_loss

orders = {
    "in order": lambda n, rng: range(n),
    "buffer": lambda n, rng: buffer_shuffle(range(n), n // 10, rng),
    "offline": lambda n, rng: np.random.default_rng(7).permutation(n),
}
figure, panel = plt.subplots(figsize=(7, 2.8), layout="constrained")
for (name, order), line in zip(orders.items(), (":", "--", "-"), strict=True):
    panel.plot(held_out_loss(folder, order), line, label=name)
panel.set(xlabel="step (50 are an epoch)", ylabel="error on held-out events")
panel.legend()
plt.close()
figure

# %% [markdown]
# In each epoch the sorted file drags the model from low to high energies, and at the end it has unlearnt the
# beginning. A wave with the period of an epoch is the signature. Look for it in your own loss curves.
#
# ## Shuffle before you decode
#
# A buffer holds samples. Of what size? A lecture shuffles 10,000 pictures after decoding and cropping them.
# <!-- given -->

# %%
cu.predict(
    "05f", "10,000 crops of 3 × 224 × 224 float32: how much memory in each worker?", unit="GB"
)

# %%
jpegs = [path.stat().st_size for path in cu.data_path("images").glob("*/*.jpg")]
decoded_gb = 10_000 * torch.zeros(3, 224, 224).nbytes / 1e9
print(f"decoded: {decoded_gb:.1f} GB, as JPEG files: {10_000 * np.mean(jpegs) / 1e9:.2f} GB")

cu.reveal("05f", decoded_gb)

# %% [markdown]
# And that in *each* worker. Shuffle what is small: indices, paths, compressed bytes. Decode behind the buffer.
#
# ### Exercise 5.2 · 5 min · ●●○
#
# A file of 20,000 events, sorted, in 100 shards. A worker reads `at_once` shards in turn, `chunk` events at a
# time, into a buffer. Choose the three numbers so that
#
# - the batch means scatter at most 1.5 times as much as in a full shuffle,
# - at most 1,000 events are in memory: `buffer + at_once * chunk`,
# - at most 1,000 requests are made: `20_000 / chunk`. <!-- given -->
#
# <details><summary>Hint 1</summary>
#
# The requests alone tell you the smallest chunk.
#
# </details>
# <details><summary>Hint 2</summary>
#
# The rest of the memory can go to the buffer, or to more shards at once. Try the two extremes.
#
# </details>


# %%
from course_utils.loading.stream import interleave


def try_out(at_once, chunk, buffer, seed=0):
    rng = np.random.default_rng(seed)
    energy = np.sort(rng.exponential(size=20_000))
    shards = shuffled(blocks(20_000, 200), rng)
    order = buffer_shuffle(interleave(shards, at_once), buffer, rng)
    return mixing(batched(order, 64), energy, memory=buffer + at_once * chunk)


tried = try_out(at_once=1, chunk=200, buffer=800)
print(tried)
draw_together({"tried": tried})

# %%
at_once = 35  ### SOLUTION
chunk = 20  ### SOLUTION
buffer = 300  ### SOLUTION

cu.check("05.2", at_once, chunk, buffer)

# %% [markdown]
# ## A thread ahead
#
# A stream often waits: for a network, for a disk. A worker process hides that, but it costs a process, a copy of the
# dataset, and the splitting. A **thread** needs none of the three. It sees the same objects, and while it
# waits for bytes the main thread runs. (Decoding in Python would not be faster: one lock lets one thread
# compute at a time.)

# %%
from course_utils.loading.prefetch import ThreadPrefetcher


def steps_of(batches):
    gpu = cu.get_accelerator(step_ms=30)
    with cu.record() as trace:
        for batch in islice(trace.batches(batches, ids="event_id"), 20):
            gpu.step(gpu.upload(batch)).item()
    return trace


def four_places():
    slow = EventShards(folder, shards=250, interleave=4, chunk=8, buffer=1, fs=lustre())
    return DataLoader(slow, batch_size=32, collate_fn=pad_collate)


alone, ahead = steps_of(four_places()), steps_of(ThreadPrefetcher(four_places()))
Timeline({"alone": alone, "with a thread": ahead})

# %% [markdown]
# ### Exercise 5.3 · 8 min · ●●●
#
# Write it. A lecture's version hangs for ever in the second epoch, on an exception, and leaks after a `break`. Yours
# does not. The check wants:
#
# - the items of `source`, in order, in every epoch,
# - at most `depth` waiting, and one in the thread's hands,
# - an exception of the source raised in the loop, after the items before it,
# - after a `break`, no thread left and the source closed.
#
# <details><summary>Hint 1</summary>
#
# Everything belongs into `__iter__`: a `queue.Queue(self.depth)`, a `threading.Event` that says *stop*, a
# function that fills the queue, and a thread that runs it.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Send pairs `(item, error)`. Let the thread `put(pair, timeout=0.1)` in a loop that also looks at the event:
# `queue.Full` means try again.
#
# </details>
# <details><summary>Hint 3</summary>
#
# After a `break` Python closes the generator: what stands in a `finally` around its `yield` is run.
#
# </details>


# %%
# %%worker_module my_prefetcher
import queue
import threading


class Prefetcher:
    def __init__(self, source, depth=2):
        self.source, self.depth = source, depth

    def __iter__(self):
        ### BEGIN SOLUTION
        ready, stop, end = queue.Queue(self.depth), threading.Event(), object()

        def send(item, error=None):
            while not stop.is_set():
                try:
                    return ready.put((item, error), timeout=0.1)
                except queue.Full:
                    pass

        def fill():
            try:
                for item in self.source:
                    send(item)
                    if stop.is_set():
                        return
                send(end)
            except BaseException as error:
                send(end, error)

        threading.Thread(target=fill, daemon=True).start()
        try:
            while (pair := ready.get())[0] is not end:
                yield pair[0]
            if pair[1] is not None:
                raise pair[1]
        finally:
            stop.set()
        ### END SOLUTION


# %%
cu.check("05.3", Prefetcher)

# %% [markdown] tags=["instructor"]
# **Instructor.** 05d: the answer depends on the machine only a little, since the storage is emulated. 05e is the one
# to wait for: nearly all say less than 2. Let somebody explain the diagonal. 05f: many forget the 4 bytes.
#
# In 5.2 most spend everything on the buffer, as every tutorial does. In 5.3 the exception is what everybody
# forgets; the `break` is what everybody gets wrong.

# %% [markdown]
# ## You now can
#
# - say what happens when an `IterableDataset` meets workers, and see it in the ledger,
# - give each worker of each rank its share, and tell an honest length,
# - choose an order by what it costs and what it is worth, and measure both,
# - hide the waiting of a stream behind a thread that survives errors, epochs and `break`.
#
# Next: file formats, which decide how far apart the places of a batch are.
