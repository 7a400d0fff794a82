# %% [markdown]
# # 05 · Stream with IterableDataset and shuffle well
#
# {here: read}
#
# **You will do:** stream a file, break the stream with a second worker, mix a sorted file, and write a prefetcher.
#
# **You will learn:**
#
# - what an `IterableDataset` leaves to you; <!-- 05a -->
# - to give each worker of each rank its share; <!-- 5.1 -->
# - what it costs to read a batch from many spots on the disk; <!-- 05b -->
# - four ways to shuffle, and how to measure their quality; <!-- 05c 5.2 -->
# - to read ahead in a thread that stops when it should. <!-- 05d 5.3 -->
#
# **You need:** notebooks 01 and 02. A CPU is enough.
#
# **Minutes:** {minutes}.

# %%
import course_utils as cu

cu.ready("05")

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Script.**
#
# - *9 min* **Data without indices.** Six lines that work, then prediction 05a, then PolarBERT. Read the ledger aloud.
#   `course demo duplicates` shows it on the wall.
# - *17 min* **Take a share.** Explain what a rank is and what a slot is. Then exercise 5.1.
# - *6 min* **One spot or many.** Prediction 05b. The gray band shows an ideal shuffle.
# - *9 min* **Four ways to shuffle.** Prediction 05c. Let somebody explain the diagonal. `course demo shuffle` shows
#   the cost and the effect of a buffer and of more spots.
# - *30 min* **Prefetch in a thread.** Prediction 05d, then exercise 5.3 in pairs. It's the best exercise of the
#   course, so give it the time.
#
# **Leave out.** Exercise 5.3. Collect on the board what could go wrong in such a thread, and give the exercise as
# homework.
#
# **Board.** Draw a sorted file as a long bar, with low energies on the left. Draw a buffer below it, a tenth as long,
# which slides from left to right. Ask which two events can hardly ever share a batch. The answer is the heat map.
#
# **Goes wrong.**
#
# - Under spawn (macOS, Windows), each loop with workers takes some seconds to start. Notebook 04 explains why.
# - Somebody interrupts a loop. `cu.cleanup_workers()` stops its workers.
# - Time is short. Stop after 5.1.

# %% [markdown]
# ## Data without indices
#
# A map-style dataset answers the question *what is event 4711?* Some data can't answer it: a socket, a compressed tar
# file or a running detector, which you can only read as they arrive. For these there's `IterableDataset`, whose one
# method, `__iter__`, yields samples. Here's a whole one. It reads a text file, line by line:

# %%
# %%worker_module lines
from torch.utils.data import IterableDataset


class Lines(IterableDataset):
    def __init__(self, path):
        self.path = path

    def __iter__(self):
        with open(self.path) as file:
            yield from map(str.strip, file)


# %%
import torch
from torch.utils.data import DataLoader

from course_utils.paths import scratch_folder

path = scratch_folder() / "events.txt"
path.write_text("\n".join(f"event {number}" for number in range(8)))
print("batch_size=4:   ", *DataLoader(Lines(path), batch_size=4))
print("batch_size=None:", *DataLoader(Lines(path), batch_size=None))

# %% [markdown]
# A class of six lines, and it works. The price of having no indices is that there's no sampler and no `shuffle=True`: *you*
# decide who reads what, and in which order. So use a map-style dataset if you can, and a stream if your data have no
# indices or if single reads are too slow.
#
# And what's `batch_size=None`? With `batch_size=4` the loader collects four lines for each batch. But a stream usually
# gets its data in pieces, because one request returns many events, and why take a piece apart, only to let the loader
# put it together again? With `batch_size=None` the loader collects nothing: whatever `__iter__` yields is what your
# loop gets (arrays become tensors), so *the dataset makes its own batches*. `Lines` makes none, and you get line after
# line.
#
# That was too easy. Now let's break it.

# %%
cu.predict("05a", "The file has 8 lines. How many does num_workers=2 serve?", unit="lines")

# %%
loader = DataLoader(Lines(path), batch_size=4, num_workers=2)
lines = [line for batch in loader for line in batch]
print(*lines, sep=", ")
cu.reveal("05a", len(lines))

# %% [markdown]
# Every worker has its own copy of the dataset and runs the whole `__iter__`: it opens the file and reads to the end.
# Without indices, the loader has nothing that it could divide among them.
#
# Surely nobody publishes that? [PolarBERT](https://github.com/timinar/PolarBERT), a published model, is pre-trained on
# IceCube events with such a dataset. Its
# [dataset](https://github.com/timinar/PolarBERT/blob/0bb51f1/src/polarbert/icecube_dataset.py) makes its own batches,
# and ours works the same way: `starts` cuts the file into batches, starting at a random event, and shuffles the
# batches.

# %%
# %%worker_module polar_like
import numpy as np
from torch.utils.data import IterableDataset


class PolarLike(IterableDataset):
    def __init__(self, event_id, batch_size):
        self.event_id, self.batch_size = event_id, batch_size

    def starts(self, rng):
        last = len(self.event_id) - self.batch_size
        starts = np.arange(rng.integers(self.batch_size), last + 1, self.batch_size)
        rng.shuffle(starts)
        return starts

    def __iter__(self):
        for start in self.starts(np.random.default_rng()):
            yield self.event_id[start : start + self.batch_size]


# %%
gpu = cu.get_accelerator(step_ms=2)


def served(dataset, workers):
    loader = DataLoader(dataset, batch_size=None, num_workers=workers)
    with cu.record() as trace:
        for batch in trace.batches(loader, ids=lambda batch: batch):
            gpu.step(gpu.upload(batch)).item()
    return trace.summary()


# %%
events = torch.arange(1024)
epochs = {workers: served(PolarLike(events, 64), workers) for workers in (0, 2, 4)}
for workers, epoch in epochs.items():
    print(f"{workers} workers serve {epoch.samples:5,} events, {epoch.distinct:5,} of them unique")
print(epochs[4])

# %% [markdown]
# The lines came twice, and so four workers serve four epochs in one. Your benchmark is delighted, because it reports
# four times the throughput, but the model sees the same events again.
#
# PolarBERT's own class does the same: from 1,024 events, four workers serve 3,840, of which 1,015 are unique. With one
# worker the class is right, and the authors document this: the README recommends `num_workers: 1`, and a configuration
# adds "Should remain 1 when using an IterableDataset". Now you know why.
#
# torch gives no warning. Only somebody who counts will notice, which is what the ledger of the summary is for.

# %% [markdown]
# ## Take a share
#
# Who am I? In a worker, `get_worker_info()` answers with its `id` and `num_workers`, and in the main process it
# returns `None`. The usual fix deals out the items like cards, which works if all workers have the *same* order. A
# random generator without a seed differs from worker to worker, but one that is seeded with the epoch doesn't.

# %%
# %%worker_module polar_fixed
import numpy as np
from polar_like import PolarLike
from torch.utils.data import get_worker_info


class PolarFixed(PolarLike):
    epoch = 0

    def __iter__(self):
        starts = self.starts(np.random.default_rng(self.epoch))  # the same in every worker
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        for start in starts[first::step]:
            yield self.event_id[start : start + self.batch_size]


# %%
print(served(PolarFixed(events, 64), workers=2))

# %% [markdown]
# Now every event is served at most once. (Some events are left out, as without workers, because the first batch starts
# at a random event.)
#
# With several GPUs there's one process per GPU, called a **rank**, and each rank has its own workers. We call each
# worker of each rank a **slot**, so two ranks with four workers have eight slots. A rank without workers is one slot.
#
# ### Exercise 5.1 · 10 min · ●●○
#
# Large data are stored in pieces, called **shards**. Divide `self.shards`, a list of iterables of events, among all
# slots.
#
# - Every event is served exactly once per epoch, for any number of ranks, with or without workers, and even with fewer
#   shards than slots.
# - A slot opens only its own shards. The numbers of shards of two slots differ by at most one.
# - One shard at a time: a slot opens the next one only when the last one has ended.
# - Only when requested: a slot reads an event when the loop asks for it, and never before. A shard may be endless.
# - An error of a shard reaches the loop. The caller's list doesn't change.
#
# <details><summary>Hint 1</summary>
#
# Number the slots. With W workers in each rank, rank 0 has the slots 0 to W − 1, and rank 1 begins with slot W. How
# many slots are there in all?
#
# </details>
# <details><summary>Hint 2</summary>
#
# `items[first::step]` deals the items out like cards: it starts at `first` and takes every `step`-th.
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
        slot = self.rank * workers + id_
        for shard in self.shards[slot :: self.world_size * workers]:
            yield from shard
        ### END SOLUTION


# %%
cu.check("05.1", ShardStream)

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **05a** Tempting: 8, because `num_workers=2` has always shared the work so far. Let it be explained before somebody
#   gives the answer, 16. With PolarLike, four workers serve nearly four times as many. You see 3,904 if a worker's
#   random start was 0, because it then has one batch more.
#
# **Goes wrong.**
#
# - In 5.1 somebody uses the rank but forgets the workers, or divides by `num_workers` if there are none. Let them
#   count the slots of two ranks without workers.

# %% [markdown]
# ## One spot or many
#
# Each event is now served once (`split(shards, WorkerSlot.here())` in `keepfed.loaders.stream` does the same), but in
# which *order*? A batch can come from *one* spot of the file, with one request, or from many spots, with many
# requests. Our emulated, busy Lustre needs 10 ms per request, and a step takes 20 ms. <!-- given --> There's a third
# way: read *long* pieces at many spots, keep them in memory, and take random events from them.
#
# The course's `EventShards` does all three, depending on how you set its three knobs:
#
# - `interleave` is the number of spots: it keeps that many shards open, and takes an event from each in turn;
# - `chunk` is the length of a piece, the number of events that one request fetches from a shard;
# - `buffer` is the number of events that wait in memory, where a random one is drawn as the next event (1 means no
#   choice).

# %%
cu.predict("05b", "How many times as long does a run take with 16 spots per batch?", unit="times")

# %%
from course_utils.stories.streaming import train_on
from keepfed.measure.picture import Timeline

folder = cu.data_path("events", "S")  # the small set: 2,000 events, sorted by energy
runs = {
    "one spot": train_on(folder, interleave=1, chunk=32, buffer=1),
    "16 spots": train_on(folder, interleave=16, chunk=2, buffer=1),
    "long pieces at 16": train_on(folder, interleave=16, chunk=32, buffer=100),
}
Timeline({name: run.trace for name, run in runs.items()})

# %%
cu.reveal("05b", runs["16 spots"].total_s / runs["one spot"].total_s)

# %% [markdown]
# One spot is cheap. But what's in its batches? The next picture shows the mean energy of each batch. If batches are
# drawn at random, 95 of 100 means are in the gray band, and the scatter of such means is the *ideal*.

# %%
from course_utils.stories.figures import drawing

with drawing(7, 2.6) as (figure, (panel,)):
    for (name, run), line in zip(runs.items(), ("o-", "s--", "^:"), strict=True):
        requests = run.storage.counters().requests
        print(f"{name}: scatter {run.scatter:.1f} times the ideal, {requests} requests")
        panel.plot(run.means, line, label=name)
    middle, width = run.energy.mean(), 2 * run.ideal
    panel.axhspan(middle - width, middle + width, color="gray", alpha=0.3)
    panel.set(xlabel="step", ylabel="mean energy\nof a batch (log10 GeV)")
    panel.legend()
figure

# %% [markdown]
# A batch from one spot has 32 events, and hardly more information than one, because all have nearly the same energy.
# (The shards come in random order, so its curve follows one shard and then jumps.) With 16 spots, the means scatter even
# less than at random, because each spot gives exactly two events to every batch.
# Long pieces take few requests and their means scatter little, so they'd be perfect if they didn't need memory.
#
# ## Four ways to shuffle
#
# - **offline**: write the file again in random order, once;
# - **shard**: read the shards in random order, each from start to end;
# - **block**: read small pieces in random order, and shuffle the events of a few pieces together;
# - **buffer**: keep some events in memory, and for each event that arrives, serve a random one of them.
#
# `mixing` measures how good an order is. It takes the mean energy of each batch and divides the scatter of these means
# by the scatter of a full shuffle, so 1 is ideal. It also counts how often two parts of the file share a batch, which
# we'll draw as a picture: a row and a column are two parts of the file, with low energies at the top left, and a field
# is yellow if their events often meet. A uniform green is ideal. Read in order, the whole file scatters about 5 times as
# much as the ideal. Now bet on a buffer that holds a tenth of the sorted file: <!-- given -->

# %%
cu.predict("05c", "How many times the ideal is the scatter with this buffer?", unit="times")

# %%
import numpy as np

from course_utils.loading.quality import mixing
from keepfed.loaders import stream

energy = runs["one spot"].energy
n, rng = len(energy), np.random.default_rng(0)
shards = stream.blocks(n, 100)  # 20 pieces of 100 events, in the order on disk
shard_shuffled = [event for shard in stream.shuffled(shards, rng) for event in shard]
ways = {  # name: the order, and how many events are held in memory
    "in order": (range(n), 0),
    "shard": (shard_shuffled, 0),
    "buffer": ([*stream.buffer_shuffle(range(n), 200, rng)], 200),
    "shard + buffer": ([*stream.buffer_shuffle(shard_shuffled, 200, rng)], 200),
    "block": (stream.BlockSampler(n, 10, together=20), 200),
    "offline": (rng.permutation(n), 0),
}

# %%
quality = {
    name: mixing(stream.batched(order, 32), energy, blocks=20, memory=memory)
    for name, (order, memory) in ways.items()
}

# %%
import matplotlib.pyplot as plt

from course_utils.loading.events import colors


def draw_mixing(ways):  # how often two parts of the file share a batch
    plt.style.use("course_utils.plots.style")  # readable on light and on dark pages
    figure = plt.figure(figsize=(2.2 * len(ways) + 1.2, 2.9), layout="constrained")
    panels = figure.subplots(1, len(ways), squeeze=False)
    for panel, (name, mixed) in zip(panels.flat, ways.items(), strict=True):
        drawn = panel.imshow(mixed.co_occurrence, cmap=colors(), vmin=0, vmax=3)
        title = f"{name} ({mixed.memory or 0} held)\nscatter {mixed.ratio:.1f} × ideal"
        panel.set_title(title, fontsize="medium")
        panel.set(xticks=[], yticks=[], xlabel="start → end of file", ylabel="end ← start")
    figure.colorbar(drawn, ax=panels, extend="max", label="share a batch\n(1 = full shuffle)")
    plt.close()  # otherwise the notebook shows the figure twice
    return figure


draw_mixing(quality)

# %%
cu.reveal("05c", quality["buffer"].ratio)

# %% [markdown]
# A buffer alone only widens the diagonal: most events move by less than its length, and one in eight moves farther.
# This file is sorted, so a buffer is hardly better than none. Small blocks come close to the ideal, but each costs a
# request.
#
# And if you could choose? On a file that was shuffled *once*, reading in order is already ideal, and if you read its
# shards in random order, every epoch is different. The price is one copy of the data.
#
# Whatever you choose, shuffle *before* you decode. A buffer of 10,000 decoded crops of 3 × 224 × 224 float32 takes 6
# GB, and *each* worker has such a buffer, so fill it with what is small, such as paths or compressed bytes.
# <!-- given -->

# %% [markdown]
# ## Prefetch in a thread
#
# A stream often waits for a network or a disk. A worker process hides this wait, but it costs a process, a copy of the
# dataset, and the splitting that you've just done. A **thread** needs none of them. It sees the same objects, and
# while it waits for bytes the main thread runs.
#
# Let's see what that brings. Each batch needs four requests of 10 ms, one after the other, and a step takes 30 ms. The
# thread loads the next batches during the step. <!-- given -->

# %%
from itertools import islice

from course_utils.loading.event_shards import EventShards
from course_utils.loading.events import pad_collate
from keepfed.loaders.prefetch import ThreadPrefetcher


def steps_of(batches):
    gpu = cu.get_accelerator(step_ms=30)
    with cu.record() as trace:
        for batch in islice(trace.batches(batches, ids="event_id"), 20):
            gpu.step(gpu.upload(batch)).item()
    return trace


# %%
cu.predict("05d", "How many times as fast is the loop with the thread?", unit="times")


# %%
def four_spots():
    lustre = cu.slow_storage(folder, "busy Lustre", cache_mb=0)
    slow = EventShards(folder, shards=250, interleave=4, chunk=8, buffer=1, fs=lustre)
    return DataLoader(slow, batch_size=32, collate_fn=pad_collate)


alone, ahead = steps_of(four_spots()), steps_of(ThreadPrefetcher(four_spots()))
Timeline({"alone": alone, "with a thread": ahead})

# %%
cu.reveal("05d", alone.summary().total_s / ahead.summary().total_s)

# %% [markdown]
# It's the model of notebook 02 again: L + C becomes max(C, L). Now the requests are the limit, so a faster GPU
# wouldn't help.
#
# But a thread doesn't speed up decoding that is written in Python. The **GIL**, Python's global interpreter lock, lets
# one thread at a time run Python code. A thread that waits for bytes releases the lock, and so do many functions of
# NumPy and of image decoders. (Free-threaded Python, an option since 3.13, has no such lock.)

# %% [markdown]
# ### Exercise 5.3 · 20 min · ●●●
#
# (Exercise 5.2 is in *Extra*.) Write such a prefetcher. The easy version has ten lines, hangs in the second epoch or
# after an error, and leaves a thread behind after a `break`. Yours must not, so the check wants:
#
# - The loop gets the items of `source` as they come, in order and without copying them. Each loop over it is a new
#   epoch, even inside another loop.
# - The queue holds at most `depth` items, at least 1, and the thread may hold one more.
# - An error of the source, even `SystemExit`, is raised in the loop after the items before it, however slow the loop or
#   the source is.
# - A `break` ends the loop at once, even while the source is silent, so the loop may not wait for its thread. When the
#   source yields its next item, the thread ends, and nothing keeps the source open.
# - The thread is a daemon, so it never keeps Python from exiting. `iter()` alone leaves no thread behind.
#
# <details><summary>Hint 1</summary>
#
# Everything belongs in `__iter__`: a `queue.Queue(self.depth)`, a `threading.Event` for *stop*, a function that fills
# the queue, and a thread that runs this function.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Send pairs `(item, error)`. Let the thread call `put(pair, timeout=0.1)` in a loop that also checks the event.
# `queue.Full` means: try again.
#
# </details>
# <details><summary>Hint 3</summary>
#
# After a `break`, Python closes the generator and runs the `finally` around its `yield`.
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
# *For the instructor*
#
# **Guesses.**
#
# - **05b** Tempting: 16. The answer is about 6, because each step takes 20 ms anyway: (160 + 20) / (10 + 20). It
#   hardly depends on the machine, because the storage system is emulated.
# - **05c** Tempting: 1 to 1.5, because a buffer sounds like mixing. The answer is about 5. On this file a buffer is
#   hardly better than none.
# - **05d** Tempting: 2, because two work at the same time, or 1, because of the GIL. It's about 1.7: (40 + 30) / 40,
#   and a waiting thread doesn't need the GIL.
#
# **Goes wrong.**
#
# - In 5.3 the error is easily forgotten, and the `break` is the hard part. Offer the hints early.

# %% [markdown]
# ## You now can
#
# - see in the ledger what workers do with an `IterableDataset`, and give each worker its share;
# - compare the cost and the quality of an order, and measure both;
# - write a thread that reads ahead, passes errors on, and stops.
#
# Next: [06 Choose a file format](06_choose_a_file_format.ipynb), because how cheap a spot of a file is depends on the
# format of the file.

# %% [markdown]
# # Extra
#
# The core ends here. No later notebook's core needs the sections below, and each section needs only the core.
# ## Tune a shuffle
#
# You've seen what each knob does, but can you set three of them at once?
#
# ### Exercise 5.2 · 10 min · ●●○
#
# A sorted file of 20,000 events is stored in 100 shards, and a worker reads `at_once` shards in turn, `chunk` events
# at a time, into a buffer of `buffer` events. Choose these three numbers; `try_out` measures the scatter, the mean of
# 20 epochs. Your targets:
#
# - a scatter of at most 1.5 times the ideal;
# - at most 1,000 events in memory: `buffer + at_once * chunk`;
# - at most 1,000 requests in an epoch. Each shard takes `200 / chunk` requests, rounded up. <!-- given -->
#
# <details><summary>Hint 1</summary>
#
# The limit on requests gives you the smallest chunk.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Give the rest of the memory to the buffer or to more shards. Try both extremes.
#
# </details>

# %%
from course_utils.exercises.nb05.problem import try_out

at_once, chunk, buffer = 1, 200, 800
print(try_out(at_once, chunk, buffer))
print(f"{100 * -(-200 // chunk):,} requests")  # rounded up

# %%
at_once = 35  ### SOLUTION
chunk = 20  ### SOLUTION
buffer = 300  ### SOLUTION

cu.check("05.2", at_once, chunk, buffer)

# %% [markdown]
# ## Audit a loader
#
# The ledger counts samples, but you have to read it. `audit` runs a loader for two epochs and names each fault, with
# the evidence and a change. What your training may do on purpose, such as repeating rare samples, it reports as a
# fact, and you decide. In a terminal, `keepfed audit python train.py` does the same for an unchanged training. Let's
# hand it `Lines`, with a longer file, because it doesn't judge workers that serve fewer than 32 samples:

# %%
from keepfed import audit

path.write_text("\n".join(map(str, range(1024))))
print(audit(DataLoader(Lines(path), batch_size=64, num_workers=4)))

# %% [markdown]
# ## How long is an epoch?
#
# If every worker has its share, it builds batches from its own events only, which sounds harmless.

# %%
# %%worker_module some_numbers
import numpy as np
from torch.utils.data import IterableDataset

from keepfed.loaders.stream import WorkerSlot, split


class Numbers(IterableDataset):
    epoch = 0

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __iter__(self):
        order = np.random.default_rng(self.epoch).permutation(self.count)
        yield from split(order, WorkerSlot.here())


# %%
cu.predict(
    "05e",
    "100 numbers in batches of 16 with drop_last=True, and four workers that share them correctly. "
    "How many numbers does an epoch serve?",
    unit="numbers",
)

# %%
for workers in 0, 4:
    loader = DataLoader(Numbers(100), batch_size=16, drop_last=True, num_workers=workers)
    numbers_served = sum(len(batch) for batch in loader)
    print(f"{workers} workers: {numbers_served:3} numbers served, len(loader) = {len(loader)}")

# %%
cu.reveal("05e", numbers_served)

# %% [markdown]
# Each worker has 25 numbers: that's one full batch, and a tail of nine that is dropped. Four workers drop four tails,
# and `len(loader)` doesn't know. Ranks with different numbers of batches are worse, because the rank with more batches
# waits for the others until the job fails.
#
# There are two ways out. Either count the batches, as `count_batches` of the course's streams does, or repeat the
# stream without end and choose the number of steps per epoch: `islice(loader, steps)`.
#
# And the second epoch? The order of `Numbers` depends on its `epoch`, which we set before each epoch. With
# `persistent_workers=True`, the workers stay alive between epochs, which saves their start.

# %%
CHOICES = ["a new one in each epoch", "the same one in each epoch"]
cu.predict("05f", "Which order do three epochs with persistent workers have?", choices=CHOICES)

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
cu.reveal("05f", CHOICES[firsts[0] == firsts[1]])

# %% [markdown]
# We changed *our* copy of the dataset, and the workers keep the copies that they received when they started. A number
# in shared memory does reach them. `SharedEpoch` in `keepfed.loaders.workers` holds such a number; `EventShards` uses
# it. Call `set_epoch(epoch)` before `iter(loader)`, since workers may start to read there.

# %% [markdown]
# ## Does a model care?
#
# All these orders look different to us, but does a model mind? A small network estimates the energy from the light. We
# plot its error on 400 held-out events during four epochs, for three orders of the sorted file.

# %%
from course_utils.stories.small_training import held_out_loss

orders = {
    "in order": lambda n, rng: range(n),
    "buffer": lambda n, rng: stream.buffer_shuffle(range(n), n // 10, rng),
    "offline": lambda n, rng: np.random.default_rng(7).permutation(n),
}
with drawing(7, 2.8) as (figure, (panel,)):
    for (name, order), line in zip(orders.items(), (":", "--", "-"), strict=True):
        panel.plot(held_out_loss(folder, order), line, label=name)
    panel.set(xlabel="step (50 are an epoch)", ylabel="error on held-out events")
    panel.legend()
figure

# %% [markdown]
# In each epoch, the sorted file moves the model from low to high energies, and at the end it has forgotten the low
# ones. So if your own loss curve has a wave, and each wave takes one epoch, check the order of your samples.

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **05e** Tempting: 96, which is the answer for one process. It is 64. Draw four boxes of 25 numbers, and cross out
#   nine in each.
# - **05f** Tempting: "a new one", because we set the epoch. It is the same one. Ask whose copy we changed.
#
# **Goes wrong.**
#
# - In 5.2 somebody spends everything on the buffer. Ask what 35 shards at once would change.
#
# **Extra.** Tune a shuffle (exercise 5.2), an honest length (4 minutes), does a model care (1).

# %% [markdown]
# ## Read ahead in a known order
#
# The order of a full shuffle follows from its seed, so a loader can compute it in advance, and [clairvoyant
# prefetching](https://arxiv.org/abs/2101.08734) uses this. Here's all of it: we read the events of the next `window`
# batches together, in the order of the file, and then serve the shuffled batches. Our Parquet file has row groups of
# 256 events, and to read one event, it must read the whole group.

# %%
cu.predict(
    "05g",
    "2,000 events, shuffled, in batches of 32. The loader reads the events of 16 batches together. "
    "By what factor does this reduce the requests of an epoch?",
    unit="times",
)

# %%
from course_utils.hardware.storage import counting_storage
from course_utils.loading.events import open_events, pad_collate


def read_ahead(events, batch_size, window, seed=0):
    order = torch.randperm(len(events), generator=torch.Generator().manual_seed(seed))
    for indices in order.split(batch_size * window):
        wanted = indices.sort().values.tolist()
        samples = dict(zip(wanted, events.__getitems__(wanted), strict=True))
        for batch in indices.split(batch_size):
            yield pad_collate([samples.pop(index) for index in batch.tolist()])


# %%
def read_epoch(window):
    storage = counting_storage(folder)
    parquet = open_events(folder, "parquet", fs=storage)
    storage.reset_counters()
    orders[window] = torch.cat([batch["event_id"] for batch in read_ahead(parquet, 32, window)])
    return storage.counters().requests


def expected_reads(n, wanted, r):  # row groups of r events that hold one of the wanted ones
    return n / r * (1 - (1 - wanted / n) ** r)


# %%
orders = {}
requests = {window: read_epoch(window) for window in (1, 4, 16)}
for window, count in requests.items():
    law = window * expected_reads(2000, 32, 256) / expected_reads(2000, 32 * window, 256)
    gain, same = requests[1] / count, torch.equal(orders[window], orders[1])
    print(f"window {window:2}: {gain:4.1f} times fewer requests, law {law:4.1f}, {same=}")

# %%
cu.reveal("05g", requests[1] / requests[16])

# %% [markdown]
# The order is exactly the same, and 16 batches are in memory. We can calculate the gain, because a request returns a
# row group of r events. If a window contains the share f of all events, it needs a group with probability 1 − (1 −
# f)ʳ. So what decides is f · r, the mean number of wanted events in a group. How much does the same window help in a
# larger file?

# %%
for n in 2_000, 20_000, 200_000, 2_000_000:
    gain = 16 * expected_reads(n, 32, 256) / expected_reads(n, 512, 256)
    wanted = 512 * 256 / n
    print(f"{n:9,} events: {wanted:6.2f} wanted in a group, {gain:4.1f} times fewer requests")

# %% [markdown]
# If there's less than about one wanted event in a group, the window doesn't help. Then shuffle blocks, or write the
# file again in random order.

# %% [markdown]
# ## A simulation as a loader
#
# A simulation has no file and no end. That's no problem for an `IterableDataset`, which can simulate each batch when
# the loop needs it. But every worker of every rank needs its own random numbers. How about the seed `rank + worker`?

# %%
cu.predict(
    "05h",
    "Two ranks have four workers each. How many different streams does the seed rank + worker give?",
    unit="streams",
)

# %%
from keepfed.loaders.stream import WorkerSlot, epoch_rng

slots = [WorkerSlot(rank, 2, worker, 4) for rank in range(2) for worker in range(4)]
summed = {np.random.default_rng(slot.rank + slot.worker).random() for slot in slots}
mixed = {epoch_rng(seed=0, epoch=0, slot=slot).random() for slot in slots}
print(f"rank + worker: {len(summed)} of 8 streams are different, epoch_rng: {len(mixed)}")

# %%
cu.reveal("05h", len(summed))

# %% [markdown]
# Worker 1 of rank 0 and worker 0 of rank 1 simulate the same events, and nobody would ever see it in a plot.
# `epoch_rng` passes the list `[seed, epoch, rank + 1, worker + 1]` to NumPy, which [mixes all of its
# numbers](https://numpy.org/doc/stable/reference/random/parallel.html). So two slots never draw the same numbers, and
# neither do two epochs.

# %%
# %%worker_module simulated
import torch
from threadpoolctl import threadpool_limits
from torch.utils.data import IterableDataset

from data_scripts.telescope.simulate import draw_events, simulate
from keepfed.loaders.stream import WorkerSlot, epoch_rng, split


class Simulated(IterableDataset):
    def __init__(self, batches, epoch=0):
        self.batches, self.epoch = batches, epoch

    def __iter__(self):
        slot = WorkerSlot.here()
        rng = epoch_rng(0, self.epoch, slot)
        with threadpool_limits(1):
            for _ in split(range(self.batches), slot):
                pulses, lengths = simulate(*draw_events(64, rng), rng)
                yield torch.from_numpy(pulses), torch.from_numpy(lengths)


# %% [markdown]
# PyTorch limits itself to one thread in a worker, but NumPy doesn't. Without `threadpool_limits`, each worker would
# use all cores, and two workers would be slower than one.
#
# For the loop, the time L to load a batch is the time to simulate it. The model of notebook 02 still holds: a step
# takes max(C, L / W) with W workers, if there are W free cores. Other programs on these cores make the step longer.

# %%
import time


def step_ms(workers, step):
    gpu, ends = cu.get_accelerator(step_ms=step), []
    for pulses, _ in DataLoader(Simulated(100), batch_size=None, num_workers=workers):
        gpu.step(gpu.upload(pulses)).item()
        ends.append(time.perf_counter())
    return 1000 * (ends[-1] - ends[39]) / 60  # workers start during the first steps


C = 5
L = step_ms(0, C) - C
for workers in 1, 2:
    model = max(C, L / workers)
    print(f"num_workers={workers}: {step_ms(workers, C):3.0f} ms per step, model {model:3.0f} ms")

# %% [markdown]
# If the simulation is the limit, more workers on more cores help, but a faster storage system doesn't. And if it's
# much slower than the step, simulate once, and write the events to shards.

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **05g** Tempting: 1, because every event is still read. It is nearly 16, because even a single batch needs every
#   row group. Now a group is read only once for 16 batches.
# - **05h** Tempting: 8. It is 5, because 0 + 1 = 1 + 0.
