# %% [markdown]
# # 07 · Cache and stage to /dev/shm
#
# **You will do:** see a cache find nothing, break a script that stages data, and repair it.
#
# **You will learn**
#
# - where data can lie on their way to the GPU, and who throws them out there,
# - when a copy in `/dev/shm` pays, what it buys, and what it does not,
# - to stage so that no half file is ever taken for a whole one,
# - to keep samples in a cache that never evicts, also with workers.
#
# **You need:** notebooks 01, 02 and 04. A CPU is enough. **Minutes:** {minutes}.

# %%
import course_utils as cu

cu.ready("07")

# %% [markdown] tags=["instructor"]
# **Instructor: plan.** Ladder (4), cliff (5), break-even (4), script and 7.1 (4 + 10), `filecache` (2), cache
# and 7.2 (4 + 6), augmentation (1), 7.3 (4), nodes (1). Short of time: leave out `filecache` and 7.3.
#
# **Board.** Five rungs: network, NVMe, page cache, `/dev/shm`, an array of your own. Ask at each: who
# throws your data out here, and when? The answer decides more than the speed does.

# %% [markdown]
# ## The ladder
#
# | Place | What it is | Who throws your data out | Who sees them | Costs |
# |---|---|---|---|---|
# | page cache | memory that nobody needs just now | the kernel, any time | the machine | nothing |
# | array in your process | memory | nobody | your process, or all that share it | memory |
# | `/dev/shm` | a file system in memory | nobody, even after your job | the machine | memory |
# | local NVMe | a disk in the node | often the batch system, after the job | the machine | a copy |
# | `filecache::` | a library's copies in a folder | nobody | who names the folder | a copy |
#
# Behind them lies the storage of the whole cluster. How long does an epoch of 2,000 events in random order take from
# each? The emulated ones need not let us wait: a `VirtualClock` adds up what they would.

# %%
import time

import numpy as np

from course_utils.hardware.storage import VirtualClock
from course_utils.loading.events import MemmapEvents, NpzEvents
from course_utils.loading.stream import batched

folder = cu.data_path("events", "S")  # the small set: 2,000 events


def epoch_s(events, clock=time.perf_counter_ns):
    order, start = np.random.default_rng(0).permutation(len(events)), clock()
    for batch in batched(order.tolist(), 64):
        events.__getitems__(batch)
    return (clock() - start) / 1e9


# %%
def far_away(name, kind=MemmapEvents):
    storage = cu.slow_storage(folder, name, cache_mb=0)
    return kind(folder, fs=storage), VirtualClock(storage)


presets = "S3", "busy Lustre", "NFS", "laptop SSD"
rungs = {f"emulated {name}": epoch_s(*far_away(name)) for name in presets}

# %% [markdown]
# The last two rungs are real: our files have been read before, so they are in the page cache; and
# `stage_to_shm` copies them to `/dev/shm`.

# %%
cu.predict(
    "07a",
    "How many times faster is an epoch from /dev/shm than one from a warm page cache?",
    unit="times",
)

# %%
from course_utils.loading.staging import stage_to_shm

staged = stage_to_shm(folder, progress=False)
print(staged.path)
both = {"page cache": MemmapEvents(folder), "/dev/shm": MemmapEvents(staged.path)}
rounds = [[epoch_s(events) for events in both.values()] for _ in range(7)]
rungs |= dict(zip(both, np.min(rounds, axis=0).tolist(), strict=True))

# %%
import matplotlib.pyplot as plt

plt.style.use("course_utils.plots")  # readable on light and on dark pages
figure, panel = plt.subplots(figsize=(7, 2.2), layout="constrained")
colours = ["C0" if name.startswith("emulated") else "C1" for name in rungs]
bars = panel.barh(list(rungs), list(rungs.values()), color=colours)
panel.bar_label(bars, fmt="%.2g s", padding=3, color=plt.rcParams["text.color"])
panel.set(xscale="log", xlabel="seconds for an epoch, loading only (log)")
panel.invert_yaxis()
panel.margins(x=0.2)
plt.close()  # the next line shows the figure; without this it would be shown twice
figure

# %%
cu.reveal("07a", rungs["page cache"] / rungs["/dev/shm"])

# %% [markdown]
# No faster: both are memory. Who says that `/dev/shm` made their training fast has compared it with a cold disk.
# What it buys is **certainty**: no other job, and no large copy of your own, pushes your data out, and no request
# goes to the network any more. What is that worth? Look at a page cache that is a little too small.
#
# ## The cliff
#
# A page cache throws out what was not used for the longest time: least recently used, LRU. (Linux refines that;
# the emulation does not.) We read 400 files, over and over, through a cache of nine tenths of their size. <!-- given -->

# %%
cu.predict(
    "07b",
    "The cache holds 90 % of the files. Every epoch reads them in the same order. What share does "
    "it find there, from the second epoch on?",
    unit="%",
)

# %%
from course_utils.hardware.storage import UNIT

files = [folder / "npz" / "000" / f"{event:06d}.npz" for event in range(400)]
need_mb = sum(-(-path.stat().st_size // UNIT) * UNIT for path in files) / 1e6


def hit_share(cache, shuffle):
    storage = cu.slow_storage(folder, "NFS", cache_mb=cache * need_mb)
    VirtualClock(storage)
    rng = np.random.default_rng(0)
    for epoch in range(3):
        for file in rng.permutation(files) if shuffle else files:
            storage.cat_file(str(file))
        if epoch == 0:
            storage.reset_counters()  # the first epoch can find nothing
    return storage.counters().hit_share


# %%
caches = 0.25, 0.5, 0.75, 0.9, 0.97, 1, 1.1
in_order = [hit_share(cache, shuffle=False) for cache in caches]
shuffled = [hit_share(cache, shuffle=True) for cache in caches]


def draw_hits():
    figure, panel = plt.subplots(figsize=(7, 2.8), layout="constrained")
    panel.plot(caches, in_order, "o-", label="page cache (emulated), same order")
    panel.plot(caches, shuffled, "s--", label="page cache (emulated), shuffled")
    panel.set(xlabel="size of the cache / size of the data", ylabel="share found in the cache")
    plt.close()
    return figure, panel


figure, panel = draw_hits()
panel.legend()
figure

# %%
cu.reveal("07b", 100 * in_order[caches.index(0.9)])

# %% [markdown]
# Nothing at all. At the end of the list its beginning has just been thrown out: it was used longest ago, and it is
# exactly what comes next. A shuffle hides some of that. A training that runs well today falls off this cliff when
# the data grow a little, or when a colleague starts a job beside it.
#
# Two ways out: what fits into memory, **stage**; else keep what fits and **never evict**.

# %% [markdown]
# ## When staging pays
#
# A copy costs once and saves in every epoch: it has paid after
#
# $$n = \frac{t_\text{stage}}{t_\text{cold epoch} - t_\text{staged epoch}}$$
#
# epochs. Two cases: 2,000 small files on NFS, and one large file on a busy Lustre. <!-- given -->

# %%
cu.predict("07c", "The 2,000 small files: after how many epochs has staging paid?", unit="epochs")

# %%
import tempfile

place = tempfile.TemporaryDirectory()  # a place of its own, so that nothing is there already


def stage_and_read(preset, kind, part):
    events, clock = far_away(preset, kind)
    cold, start = epoch_s(events, clock), clock()
    with stage_to_shm(folder / part, fs=events.fs, to=place.name, progress=False):
        stage_s = (clock() - start) / 1e9
    return stage_s, cold, epoch_s(kind(staged.path))


cases = {
    "2,000 files on NFS": stage_and_read("NFS", NpzEvents, "npz"),
    "one file on Lustre": stage_and_read("busy Lustre", MemmapEvents, "npy"),
}

# %%
figure, panels = plt.subplots(1, 2, figsize=(9, 2.6), layout="constrained")
paid, epochs = {}, np.linspace(0, 3, 50)
for panel, (name, (stage_s, cold_s, staged_s)) in zip(panels, cases.items(), strict=True):
    paid[name] = stage_s / (cold_s - staged_s)
    panel.plot(epochs, cold_s * epochs, "--", label="from the storage")
    panel.plot(epochs, stage_s + staged_s * epochs, label="staged")
    panel.axvline(paid[name], color="0.5", ls=":")
    panel.set(title=f"{name}: paid after {paid[name]:.2f}", xlabel="epochs", xticks=range(4))
panels[0].set_ylabel("seconds of loading\n(emulated)")
panels[0].legend()
plt.close()
figure

# %%
cu.reveal("07c", paid["2,000 files on NFS"])

# %% [markdown]
# To stage small files asks for each of them, as an epoch does: it costs one epoch. The large file is copied in a
# few requests, while an epoch of random reads makes hundreds: staging has paid before the first one ends. So pack
# first, then stage.
#
# The formula also says when staging *never* pays: when the page cache holds all, or when workers hide the loading,
# a cold epoch is no slower than a staged one.
#
# Courses of the Jülich Supercomputing Centre say that the copy of ImageNet-21k takes 21 minutes and more, and advise
# `/dev/shm` for data below 500 GB. If that saves seven minutes in each epoch, it has paid after three.
#
# ## The script of the lectures
#
# This is how three lectures stage:

# %%
from pathlib import Path

from notebooks.stories.staging_scripts import AS_IN_THE_LECTURES, REPAIRED, run_script

print(AS_IN_THE_LECTURES)

# %% [markdown]
# The batch system kills a job while `cp` is half way. The job is submitted again, runs the same script, and
# reads the pulses with `np.memmap`.

# %%
cu.predict(
    "07d",
    "What does the second job read?",
    choices=["all pulses", "half of them, without an error", "nothing: there is an error"],
)

# %%
source = Path(place.name, "pulses.bin")
np.load(folder / "npy" / "pulses.npy").tofile(source)
shm = Path(place.name, "shm")
shm.mkdir(exist_ok=True)
half = source.read_bytes()[: source.stat().st_size // 2]
(shm / source.name).write_bytes(half)  # what a killed cp leaves

copy = run_script(AS_IN_THE_LECTURES, source, shm)
pulses, wanted = (np.memmap(path, np.float32).size // 4 for path in (copy, source))
print(f"{pulses:,} of {wanted:,} pulses")

# %%
outcomes = {1: "all pulses", 0.5: "half of them, without an error"}
cu.reveal("07d", outcomes.get(round(pulses / wanted, 1), "nothing: there is an error"))

# %% [markdown]
# `[ ! -e ]` asks whether there is *something*. Besides, two jobs on a node copy into one file; nobody asks for room;
# a space in the name takes the command apart; nothing is ever removed. Repaired, with the half file in its way:

# %%
print(REPAIRED)
copy = run_script(REPAIRED, source, shm)
print(f"\n{np.memmap(copy, np.float32).size // 4:,} of {wanted:,} pulses")

# %% [markdown]
# Three ideas make it safe. What has the **final name** is whole, since a rename happens at once or not at all. A
# **lock** that ends with its process lets one copy and the others wait. And a copy is **compared**: with the
# source's size and time before it is used again, with its bytes after it was made.
#
# ### Exercise 7.1 · 10 min · ●●●
#
# Write it in Python: `stage(source, place)` copies a file into a folder and returns the path of the copy. The check
# kills it half way, gives it too little room, lets two run at once, and changes the source. Target: never a
# half file under the final name; one copy, however many ask; no second one while the source is the same; nothing
# left behind.
#
# <details><summary>Hint 1: the order of things</summary>
#
# Lock; is a good copy there? else copy to another name *in the same folder*; `os.replace(half, target)`.
#
# </details>
# <details><summary>Hint 2: the lock</summary>
#
# `with FileLock(f"{target}.lock"):` ends with its process, however that ends. A file that you create and
# delete yourself stays when you are killed.
#
# </details>
# <details><summary>Hint 3: a good copy</summary>
#
# `st_size` and `st_mtime_ns` of both are equal: `os.stat` reads no data. `shutil.copy2` gives the copy the
# source's time.
#
# </details>


# %%
# %%worker_module my_staging
import os
import shutil
from pathlib import Path

from filelock import FileLock


def stage(source: str, place: str) -> str:
    target = Path(place, Path(source).name)
    ### BEGIN SOLUTION
    half = target.with_name(f"{target.name}.part")
    with FileLock(f"{target}.lock"):
        was = os.stat(source)
        if target.exists():
            now = target.stat()
            if (now.st_size, now.st_mtime_ns) == (was.st_size, was.st_mtime_ns):
                return str(target)
        try:
            shutil.copy2(source, half)
            os.replace(half, target)
        finally:
            half.unlink(missing_ok=True)
    return str(target)
    ### END SOLUTION


# %%
cu.check("07.1", stage)

# %% [markdown]
# Ours is `stage_to_shm`, and in a terminal `course stage PATH`. It takes folders and `s3://` too, asks whether the
# file system *and* the limit of your job have room, and compares checksums.
#
# ### The library's way
#
# `fsspec` has a cache of whole files, `filecache::`. It needs no change but a prefix or a wrapped file system:

# %%
import fsspec

slow = cu.slow_storage(folder, "busy Lustre", cache_mb=0)
cached = fsspec.filesystem("filecache", fs=slow, cache_storage=f"{place.name}/filecache")
for epoch in range(2):
    slow.reset_counters()
    epoch_s(MemmapEvents(folder, fs=cached))
    print(f"epoch {epoch}: {slow.counters()}")

# %% [markdown]
# The second epoch asks for no data. Know what is left out. There is no limit of size and no lock, and it writes under
# the final name: if you interrupt a cell while it copies, the same kernel takes the half file for the whole one. And
# unless you say `check_files=True`, it does not notice for a week that the source has changed.
#
# ## What does not fit
#
# Keep the samples that there is room for. A cache is quickly written:

# %%
# %%worker_module keeps
from torch.utils.data import Dataset


class Keeps(Dataset):
    def __init__(self, dataset):
        self.dataset, self.kept = dataset, {}

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int):
        if index not in self.kept:
            self.kept[index] = self.dataset[index]
        return self.kept[index]


# %%
cu.predict(
    "07e",
    "Two workers, 64 files, room for all. How many of the files does the second epoch read from the "
    "storage again?",
    unit="files",
)

# %%
from torch.utils.data import DataLoader, Subset

from course_utils.loading.events import pad_collate

nfs = cu.slow_storage(folder, "NFS", cache_mb=0)
few = Subset(NpzEvents(folder, fs=nfs), range(64))


def requests_of_epochs(dataset):
    loader, requests = DataLoader(dataset, 16, num_workers=2, collate_fn=pad_collate), []
    for _ in range(2):
        nfs.reset_counters()
        list(loader)
        requests.append(nfs.counters().requests)
    return requests


in_a_dict = requests_of_epochs(Keeps(few))
print("requests in the two epochs:", in_a_dict)

# %%
cu.reveal("07e", in_a_dict[1])

# %% [markdown]
# All of them: each worker filled the dict of its own copy of the dataset, and the copies ended with the epoch.
# `persistent_workers=True` keeps them, but then each worker has a cache of its own, of what it happened to read. What
# stays lies in **shared memory**, made before the workers start. `SampleCache` does that.

# %%
from course_utils.loading.cache import SampleCache

cache = SampleCache(few, megabytes=5)
print("requests in the two epochs:", requests_of_epochs(cache))
print(cache)

# %% [markdown]
# It never evicts: what came first stays, and when the room is used up nothing more is kept. Back to the cliff:


# %%
def second_time(megabytes):
    kept = SampleCache(Subset(NpzEvents(folder), range(400)), megabytes)
    for _ in range(2):
        kept.reset_counters()
        epoch_s(kept)
    return kept


all_mb = second_time(megabytes=10).nbytes / 1e6
kept_shares = [second_time(cache * all_mb).hit_share for cache in caches]

# %%
figure, panel = draw_hits()
panel.plot(caches, kept_shares, "^:", label="never evicts")
panel.legend()
figure

# %% [markdown]
# The share found is the share that fits: no cliff, whatever the order. What does that do for a GPU? Both caches hold
# nine tenths of 400 shuffled events. (A page cache spares the reading, not the opening.) <!-- given -->

# %%
from course_utils.measure.picture import Timeline

gpu = cu.get_accelerator(step_ms=20)


def second_epoch(dataset):
    loader = DataLoader(dataset, 16, shuffle=True, collate_fn=pad_collate)
    list(loader)  # the first one fills the caches
    with cu.record() as trace:
        for batch in trace.batches(loader):
            gpu.step(gpu.upload(batch)).item()
    return trace


# %%
def events_on_nfs(cache_mb=0):
    storage = cu.slow_storage(folder, "NFS", cache_mb=cache_mb)
    return Subset(NpzEvents(folder, fs=storage), range(400))


through_lru = second_epoch(events_on_nfs(0.9 * need_mb))
never_evict = second_epoch(SampleCache(events_on_nfs(), 0.9 * all_mb))
Timeline({"page cache": through_lru, "never evicts": never_evict})

# %% [markdown]
# ### Exercise 7.2 · 6 min · ●●○
#
# Write a cache around a dataset of equal tensors. It keeps at most `budget` bytes of samples and never throws one
# out. The check counts requests in three epochs, changes samples that it got, and fills the cache in two workers.
# Target: from the second epoch on, one request for each sample that does not fit, and none for the others.
#
# <details><summary>Hint 1: what to keep</summary>
#
# A tensor for the samples and one of `torch.bool` that says which are there, both with `.share_memory_()`.
#
# </details>
# <details><summary>Hint 2: where to keep it</summary>
#
# Workers cannot agree on the next free place. Let sample i have place i; those from
# `budget // dataset[0].nbytes` on have none.
#
# </details>


# %%
# %%worker_module my_cache
import torch
from torch.utils.data import Dataset


class Cached(Dataset):
    def __init__(self, dataset, budget: int):
        self.dataset = dataset
        ### BEGIN SOLUTION
        first = dataset[0]
        places = min(len(dataset), budget // first.nbytes)
        self.kept = torch.zeros(places, *first.shape, dtype=first.dtype).share_memory_()
        self.here = torch.zeros(places, dtype=torch.bool).share_memory_()
        ### END SOLUTION

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> torch.Tensor:
        ### BEGIN SOLUTION
        if index >= len(self.here):
            return self.dataset[index]
        if not self.here[index]:
            self.kept[index] = self.dataset[index]
            self.here[index] = True
        return self.kept[index].clone()
        ### END SOLUTION


# %%
cu.check("07.2", Cached)

# %% [markdown] tags=["instructor"]
# **Instructor.** 07a: most say 2 to 10. 07b: nearly all say 90; those who know LRU say 0. 07c: guesses go from
# 0.1 to 20. 07d: half of the room trusts in an error; let somebody explain where it would come from. 07e:
# who did notebook 04 says 64.
#
# In 7.1 everybody writes the temporary name; the lock comes after the look at the copy, and the half file of
# a full disk stays. In 7.2 the misconception is a counter of free places.

# %% [markdown]
# ### Before the random part
#
# Where does an augmentation belong? Here a random run of 32 pulses stands for a crop.


# %%
# %%worker_module random_runs
import torch
from torch.utils.data import Dataset


class RandomRuns(Dataset):
    def __init__(self, dataset):
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> torch.Tensor:
        pulses = self.dataset[index]["pulses"]
        first = torch.randint(len(pulses) - 31, ())
        return pulses[first : first + 32]


# %%
cu.predict(
    "07f",
    "An event in eight epochs, cached after its random run was cut: how many different runs "
    "does the model see?",
    unit="runs",
)

# %%
events = MemmapEvents(folder)
long = int(np.diff(events.offsets).argmax())
orders = {
    "cut, then cached": Keeps(RandomRuns(events)),
    "cached, then cut": RandomRuns(Keeps(events)),
}
runs = {
    name: len({dataset[long].numpy().tobytes() for _ in range(8)})
    for name, dataset in orders.items()
}
print(runs)

# %%
cu.reveal("07f", runs["cut, then cached"])

# %% [markdown]
# Cached behind the random part, the augmentation is frozen: it costs as before and brings nothing. Cache what is
# expensive and always the same: read, decoded, resized. Cut and rotate behind it.
#
# ## What it costs
#
# `/dev/shm` takes no memory until something lies there, and up to half of the machine's by default. What lies there
# counts as memory of the job that wrote it: above its limit the kernel kills the job. The batches of workers travel
# through it too, and it is emptied by nobody: remove what you staged.

# %%
print("removed:", staged.unstage())

# %% [markdown]
# ### Exercise 7.3 · 4 min · ●●○
#
# How many MB may be staged so that the job lives? Workers have `prefetch_factor` batches each ready in `/dev/shm`,
# and one more is in use. Without workers nothing travels. `program_mb` is the training program alone.

# %%
from notebooks.exercises.nb07.problem import JOBS, Job

print(" " * 15, *(f"{name:>13}" for name in JOBS))
for field in Job.__dataclass_fields__:
    print(f"{field:15}", *(f"{getattr(job, field):13,}" for job in JOBS.values()))

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# There are two limits, and the smaller one counts: `/dev/shm`, and the memory of the job.
#
# </details>
# <details><summary>Hint 2</summary>
#
# The batches on their way lie in `/dev/shm`, and so they take from both.
#
# </details>


# %%
def stageable_mb(job: Job) -> float:
    """Return the MB that may lie in /dev/shm beside what the job needs there."""
    ### BEGIN SOLUTION
    batches = job.workers * job.prefetch_factor + 1 if job.workers else 0
    travelling = batches * job.batch_mb
    used = job.program_mb + job.workers * job.worker_mb + travelling
    return max(0, min(job.shm_mb - travelling, job.memory_mb - used))
    ### END SOLUTION


print({name: stageable_mb(job) for name, job in JOBS.items()})
cu.check("07.3", stageable_mb)

# %% [markdown]
# For your machine:

# %%
from course_utils.loading.workers import shm_budget

shm_budget(pad_collate([few[event] for event in range(16)]), num_workers=2)

# %% [markdown]
# ## Many nodes
#
# One more reason to stage comes with the second node. All read the same shards, from one Lustre server or each from
# an NVMe of its own; both are emulated.

# %%
cu.predict(
    "07g",
    "Eight nodes read from the shared server. How many times the events per second of one node "
    "do they get together?",
    unit="times",
)

# %%
from notebooks.stories.many_nodes import node_rates

event_bytes, nodes = events.offsets[-1] * 16 / len(events), (1, 2, 4, 8)
shared = [node_rates("busy Lustre", n, shared=True, event_bytes=event_bytes) for n in nodes]
local = [node_rates("laptop SSD", n, shared=False, event_bytes=event_bytes) for n in nodes]

figure, panel = plt.subplots(figsize=(7, 2.6), layout="constrained")
panel.plot(nodes, local, "o-", label="each its own NVMe (emulated)")
panel.plot(nodes, shared, "s--", label="one shared server (emulated)")
panel.set(xscale="log", yscale="log", xlabel="nodes", ylabel="events/s, all nodes")
panel.set_xticks(nodes, nodes)
panel.minorticks_off()
panel.legend()
plt.close()
figure

# %%
cu.reveal("07g", shared[-1] / shared[0])

# %% [markdown]
# One reader was enough to fill the line of the server; eight share it, and each gets an eighth. What lies in the node
# grows with the nodes. The copy to all of them goes through the same line, though, once.
#
# Large machines work on the shared rung itself:
#
# - **Lustre** spreads a large file over many servers, and asks a metadata server for every open: it is made for few
#   large files, and its speed is divided among all users.
# - **Burst buffers** put SSDs between the nodes and the parallel file system and give them to a job for its time;
#   that of Cori had 1.8 PB and a peak bandwidth of over 1.7 TB/s.
# - **DAOS** is an object store made for NVMe, with small random requests in mind; a file system is only one of
#   its faces.
# - **3FS** of DeepSeek joins the SSDs of many nodes by a fast network; a read test on 180 storage nodes gave 6.6 TiB/s.
# - Its authors say that data need no shuffling in advance then: random access is paid with hardware.

# %% [markdown] tags=["instructor"]
# **Instructor.** 07.6 splits the room between 1 and 8; both orders are in the cell, so let it answer. 07g: most say
# 4 to 8. In 7.3 many subtract the batches from one limit only; ask where a byte of `/dev/shm` lies.
#
# What goes wrong: a container with 64 MB of `/dev/shm` has room for all of this, but not for more workers.

# %% [markdown]
# ## You now can
#
# - say for each place who throws your data out, and who sees them,
# - predict what a cache that is a little too small finds: nothing,
# - say after how many epochs staging has paid, and what it does not buy,
# - stage so that a kill, a full disk or a second job leave nothing broken,
# - cache in front of the random part, in memory that all workers see.
#
# Next: augmentation, on the CPU or on the GPU.
