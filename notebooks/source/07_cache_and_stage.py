# %% [markdown]
# # 07 · Cache and stage to /dev/shm
#
# **You will do:** break a script that stages data, and write a cache that all workers share.
#
# **You will learn**
#
# - where data can lie, and who throws them out there,
# - when a copy in `/dev/shm` pays, what it buys, and what it does not,
# - how a half copy is taken for a whole one,
# - to keep samples in memory that workers share.
#
# **You need:** notebooks 01, 02 and 04. A CPU is enough. **Minutes:** {minutes}.

# %%
import course_utils as cu

cu.ready("07")

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Script.**
#
# - *4 min* **The ladder of places.** Prediction 07a. Ask who has ever cleared a page cache before
#   measuring.
# - *2 min* **When staging pays.** Prediction 07b, by arithmetic.
# - *4 min* **The script of the lectures.** Prediction 07c: read the script aloud, line by line, and
#   let the room find what can go wrong at each.
# - *14 min* **What does not fit.** Prediction 07d, then exercise 7.2.
# - *10 min* **What /dev/shm costs.** Exercise 7.3; unstage before you go on.
#
# **Board.** Five rungs: network, NVMe, page cache, `/dev/shm`, an array of your own. Ask at each: who
# throws your data out here, and when? The answer decides more than the speed does.

# %% [markdown]
# ## The ladder of places
#
# | Place | What it is | Who throws your data out |
# |---|---|---|
# | array in your process | memory | nobody, but only your process sees it |
# | page cache | memory that nobody needs just now | the kernel, any time |
# | `/dev/shm` | a file system in memory | nobody, even after your job |
# | local NVMe | a disk in the node | often the batch system, after the job |
#
# Behind them lies the storage of the cluster. How long does an epoch of 2,000 events in random order take from each?
# Here are four emulated storages and two real places: our files were read before and are in the page cache,
# and `stage_to_shm` *stages* them: it copies them to `/dev/shm`.

# %%
cu.predict("07a", "How many times faster is /dev/shm than a warm page cache?", unit="times")

# %%
from course_stories.data_places import draw_epoch_times, emulated_s, warm_s
from keepfed.loaders.staging import stage_to_shm

folder = cu.data_path("events", "S")  # the small set: 2,000 events
staged = stage_to_shm(folder, progress=False)
presets = "S3", "busy Lustre", "NFS", "laptop SSD"
rungs = {f"emulated {name}": emulated_s(folder, name) for name in presets}
rungs["page cache"], rungs["/dev/shm"] = warm_s(folder, staged.path)
draw_epoch_times(rungs)

# %%
cu.reveal("07a", rungs["page cache"] / rungs["/dev/shm"])

# %% [markdown]
# No faster, but for noise: both are memory. Whoever says that `/dev/shm` made a training fast has compared it with a cold disk.
# What it buys is **certainty**: no other job, and no large copy of your own, pushes your data out.
#
# Remember the cliff of notebook 02: data a little too large for the page cache, read in the same order
# again and again, are never found there. (It throws out what was *least recently used*, LRU.) There are two ways out:
# **stage** what fits into memory; otherwise keep what fits and throw none of it out: **never evict**.
#
# ## When staging pays
#
# A copy costs once and saves in every epoch. It has paid after
#
# $$n = \frac{t_\text{stage}}{t_\text{cold epoch} - t_\text{staged epoch}}$$
#
# epochs. Take 2,000 small files on NFS, and one large file on busy Lustre. <!-- given -->

# %%
cu.predict("07b", "The 2,000 small files: after how many epochs has staging paid?", unit="epochs")

# %%
from course_stories.data_places import draw_break_even

figure, small_files, one_file = draw_break_even(folder)
figure

# %%
cu.reveal("07b", small_files)

# %% [markdown]
# Staging small files asks for each of them, as an epoch does, so it costs one epoch. The large file is copied in a
# few requests, while an epoch of random reads makes hundreds: staging has paid before the first one ends. So pack
# first, then stage. Where the page cache holds all, or workers hide the loading, staging *never* pays.
#
# ## The script of the lectures
#
# This is how three lectures stage:

# %%
from course_stories.staging_scripts import COMMON_SCRIPT, REPAIRED_SCRIPT, truncated_copy, run_script

print(COMMON_SCRIPT)

# %% [markdown]
# The batch system kills a job while `cp` is half way. The job is submitted again, runs the same script, and
# reads the pulses with `np.memmap`.

# %%
CHOICES = ["all pulses", "half of them, without an error", "nothing: there is an error"]
cu.predict("07c", "What does the second job read?", choices=CHOICES)

# %%
import numpy as np

source, shm = truncated_copy(folder)  # what a killed cp leaves
copy = run_script(COMMON_SCRIPT, source, shm)
pulses, wanted = (np.memmap(path, np.float32).size // 4 for path in (copy, source))
print(f"{pulses:,} of {wanted:,} pulses")

# %%
cu.reveal("07c", CHOICES[0 if pulses == wanted else 1 if pulses else 2])

# %% [markdown]
# `[ ! -e ]` asks whether there is *something*. Besides, two jobs on a node copy into one file; nobody asks for room;
# a space in the name takes the command apart; nothing is ever removed. Three ideas make it safe:
#
# - What has the **final name** is whole. The copy is made under another name beside it, and then renamed, which
#   happens at once or not at all. (From one file system to another there is no renaming: there `mv` copies.)
# - A **lock** that ends with its process lets one job copy, and the others wait.
# - A copy is **compared** with its source: size and time before it is used again, bytes after it was made.

# %%
print(REPAIRED_SCRIPT)
copy = run_script(REPAIRED_SCRIPT, source, shm)
print(f"\n{np.memmap(copy, np.float32).size // 4:,} of {wanted:,} pulses")

# %% [markdown]
# The course's `stage_to_shm` does all this, and so does `course stage PATH` in a terminal. (In exercise 7.1, which
# is extra, you write it in Python.)
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
cu.predict("07d", "64 files, two workers: how many does the second epoch read again?", unit="files")

# %%
from torch.utils.data import DataLoader, Subset

from course_utils.loading.events import NpzEvents, pad_collate
from keepfed.loaders.cache import SampleCache

nfs = cu.slow_storage(folder, "NFS", cache_mb=0)
few = Subset(NpzEvents(folder, fs=nfs), range(64))


def requests_of_epochs(dataset):
    loader, requests = DataLoader(dataset, 16, num_workers=2, collate_fn=pad_collate), []
    for _ in range(2):
        nfs.reset_counters()
        list(loader)
        requests.append(nfs.counters().requests)
    return requests


in_a_dict, shared = requests_of_epochs(Keeps(few)), requests_of_epochs(SampleCache(few, 5))  # MB
print("requests in two epochs:", in_a_dict, "in a dict,", shared, "in a SampleCache")

# %%
cu.reveal("07d", in_a_dict[1])

# %% [markdown]
# All of them: each worker filled the dict of its own copy of the dataset, and the copies ended with the epoch. What is
# to stay must lie in **shared memory** made before the workers start, as in the course's `SampleCache`.
#
# A tensor gets there by `share_memory_()`. It may *seem* to work without: under `forkserver` and `spawn` the dataset
# is pickled for the workers, and pickling moves its tensors to shared memory. Under `fork` nothing is pickled,
# and what a worker writes into a plain tensor is lost.
#
# `SampleCache` never evicts: what came first stays. So the share of samples that are found in it is the share that
# fits, whatever the order: there is no cliff.
#
# ### Exercise 7.2 · 10 min · ●●○
#
# Write a cache around a dataset whose tensors have one shape and type. It keeps at most `budget` bytes of samples and
# never throws one out. From the second epoch on it makes one request for each sample that does not fit, and none for
# the others, also when workers fill it, however they start. The check changes samples it got, and lets a read fail once.
#
# <details><summary>Hint 1: what to keep</summary>
#
# A tensor for the samples and one of `torch.bool` that says which are there, both with `.share_memory_()`.
#
# </details>
# <details><summary>Hint 2: where to keep it</summary>
#
# Two workers that ask for the next free place may get the same one, unless there is a lock. Without any: let sample i
# have place i; those from `budget // dataset[0].nbytes` on have none.
#
# </details>
# <details><summary>Hint 3: in which order</summary>
#
# Read the sample, keep it, and only then note that it is there: the read may fail.
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

# %% [markdown]
# Whatever you keep, keep it *before* the random part. An augmentation that is cached is frozen: every epoch sees the
# same crop.
#
# ## What /dev/shm costs
#
# `/dev/shm` takes no memory until something lies there, and up to half of the machine's by default. What lies there
# counts as memory of the job that wrote it: above its limit the kernel kills the job. The batches of workers travel
# through it too. And nobody empties it: remove what you staged.

# %%
print("removed:", staged.unstage())

# %% [markdown]
# ### Exercise 7.3 · 10 min · ●●○
#
# How many MB may be staged so that the job lives? Each worker has `prefetch_factor` batches ready in `/dev/shm`,
# and the loop has one more in use. Without workers nothing travels. `program_mb` is the training program alone,
# `worker_mb` one worker.

# %%
from course_exercises.nb07.problem import JOBS, StagingJob

print(" " * 15, *(f"{name:>13}" for name in JOBS))
for field in StagingJob.__dataclass_fields__:
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
def stageable_mb(job: StagingJob) -> float:
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
from course_utils.hardware.machine import memory, memory_free
from keepfed.loaders.workers import shm_budget

batch = pad_collate([few[event] for event in range(16)])
shm_budget(batch, num_workers=2, programs_bytes=memory() - memory_free())  # what is in use now

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **07a** 10 and more, since everybody has heard that `/dev/shm` is fast. It is about 1: both are
#   memory.
# - **07b** Many say 2 or 3. It is about 1: to stage small files asks for each of them, as an epoch
#   does.
# - **07c** Whoever trusts in an error should say where it would come from. The second job reads half
#   of the pulses.
# - **07d** 0, "they are in the cache". It is all 64: notebook 04 has the answer, each worker has a
#   copy of its own.
#
# **Goes wrong.**
#
# - In 7.2 there is a counter of free places, which each worker has for itself; or tensors that only
#   pickling shares, which fails under fork. Ask in which process that line writes.
# - In 7.3 staged bytes are counted once. Ask where a byte of `/dev/shm` lies: it is memory too.
# - A container with 64 MB of `/dev/shm` has room for all of this, but not for more workers. Start it
#   with `--shm-size=2g`.

# %% [markdown]
# ## You now can
#
# - say who throws your data out where, and after how many epochs staging has paid,
# - stage so that a kill, a full disk or a second job leave nothing broken,
# - keep what fits in memory that all workers see, and count how much that may be.
#
# Next: [augmentation](08_augment_on_cpu_or_gpu.ipynb), on the CPU or on the GPU.

# %% [markdown]
# # Extra
#
# The core ends here. No later notebook's core needs what follows, and each section only the core.

# %% [markdown]
# ## Stage a file yourself
#
# Python has all that the repaired script needs.
#
# ### Exercise 7.1 · 20 min · ●●●
#
# `stage(source, place)` copies a file into a folder and returns the path of the copy. Where the source lies, your job may
# only read. The check kills it half way, gives it too little room, lets two run at once, and changes the source. The target:
#
# - never a half file under the final name, and none left over: not after an error, which the caller gets, nor of a killed job, once the next is done;
# - one copy, however many ask, and no second one while the source is the same.
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
# ## A cache of fsspec
#
# `fsspec` has a cache of whole files, `filecache::`. It needs no change but a prefix or a wrapped file system:

# %%
import tempfile

import fsspec

from course_stories.data_places import epoch_s
from course_utils.loading.events import MemmapEvents

slow = cu.slow_storage(folder, "busy Lustre", cache_mb=0)
room = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
cached = fsspec.filesystem("filecache", fs=slow, cache_storage=room.name)
for epoch in range(2):
    slow.reset_counters()
    epoch_s(MemmapEvents(folder, fs=cached))
    print(f"epoch {epoch}: {slow.counters()}")

# %% [markdown]
# The second epoch asks for no data. But know what is left out. There is no limit of size and no lock, and it writes
# under the final name: if you interrupt a cell while it copies, the same kernel takes the half file for the whole
# one. And unless you say `check_files=True`, it does not notice for a week that the source has changed.
#
# ## Before the random part
#
# Where does an augmentation belong? Here a random stretch of 32 pulses stands for a crop.


# %%
# %%worker_module random_stretches
import torch
from torch.utils.data import Dataset


class RandomStretches(Dataset):
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
    "07e",
    "An event in eight epochs, cached after its random stretch was cut: how many different "
    "stretches does the model see?",
)

# %%
events = MemmapEvents(folder)
long = int(np.diff(events.offsets).argmax())
orders = {
    "cut, then cached": Keeps(RandomStretches(events)),
    "cached, then cut": RandomStretches(Keeps(events)),
}
stretches = {
    name: len({dataset[long].numpy().tobytes() for _ in range(8)})
    for name, dataset in orders.items()
}
print(stretches)

# %%
cu.reveal("07e", stretches["cut, then cached"])

# %% [markdown]
# Cached after the random part, the augmentation is frozen: it costs as before and brings nothing. Cache what is
# expensive and always the same, such as what was read, decoded and resized. Cut and rotate after that.
#
# ## Many nodes
#
# One more reason to stage comes with the second node. Where one reader already fills the line of a shared server,
# eight readers get an eighth each, while every node brings an NVMe disk of its own. The copy to all nodes goes
# through that line too, but only once. Courses of the
# [Jülich Supercomputing Centre](https://helmholtzai-fzj.github.io/2025-06-course-Bringing-Deep-Learning-Workloads-to-JSC-supercomputers/02-speedup-data-loading.html),
# say that copying ImageNet-21k to `$SCRATCH` takes 21 minutes and more, and advise `/dev/shm` for data below 500 GB.
#
# Checkpoints go through that line as well, in the other direction: while one is
# written, all nodes wait, so write it to the node first and let it move on while the training runs.
#
# Large machines work on the shared rung itself:
#
# - **Lustre** spreads a large file over many servers, and asks a metadata server for every open. It is made for few
#   large files, and its speed is divided among all users.
# - **Burst buffers** put SSDs between the nodes and the parallel file system, and give them to a job for its time.
#   [That of Cori](https://docs.nersc.gov/filesystems/cori-burst-buffer/) had 1.8 PB and a peak bandwidth of over 1.7 TB/s.
# - **[DAOS](https://github.com/daos-stack/daos)** is an object store made for NVMe, with small random requests in mind; a
#   file system is only one of its faces.
# - **[3FS](https://github.com/deepseek-ai/3FS)** of DeepSeek joins the SSDs of many nodes by a fast network. A read
#   test on 180 storage nodes gave 6.6 TiB/s. Its authors say that data need no shuffling in advance then: the
#   random access is paid for with hardware.

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **07e** 8, since there are eight epochs. It is 1: what is cached after the random part is frozen.
#
# **Goes wrong.**
#
# - In 7.1 the temporary name comes easily; the lock comes after the look at the copy, and the half
#   file of a full disk stays. Whoever moves the copy in from `/tmp` has met the border of a file
#   system.
#
# **Extra.** 7.1 (20 minutes, homework), `filecache` (2), augmentation (2), many nodes (2).
