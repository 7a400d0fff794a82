# %% [markdown]
# # 11 · Feed many GPUs and survive a restart
#
# **You will do:** train on three ranks at once, serve every sample once, find the rank that holds up the others, and end an epoch without a hang.
#
# **You will learn**
#
# - which rank serves which sample, and what `DistributedSampler` does without telling,
# - why the slowest rank sets the pace, and how to find it,
# - why ranks wait for ever at the end of an epoch, and how to prevent it,
# - how a training goes on after a restart.
#
# **You need:** notebooks 03 and 05. A CPU is enough. **Minutes:** {minutes}.

# %%
import course_utils as cu

cu.ready("11")

# %% [markdown] tags=["instructor"]
# **Instructor: plan.** One script, many processes (4), who serves what (3), 11.1 (10), the slowest rank (4), uneven ends (3), 11.2 (10).
# Each run of `torchrun` starts three Pythons, and takes up to 15 s on two cores: run the cell first, then ask for the predictions.

# %% [markdown]
# ## One script, many processes
#
# To train one model on many GPUs, you start the same script once for each of them. Such a process is called a **rank**. It has
# a copy of the model and a loader of its own. After each step the ranks *meet*: they average their gradients, so
# that all copies of the model stay alike. Three ranks with batches of 16 so train on a **global batch** of 48. <!-- given -->
#
# This is the loop of a rank. On GPUs the ranks meet through NCCL, elsewhere through Gloo; the code is the same.

# %%
# %%worker_module rank_loop
import torch
import torch.distributed as dist

import course_utils as cu
from course_utils.hardware.gpu import rank_accelerator
from course_utils.measure.ranks import save_rank


def train(loader, traces):
    gpu = rank_accelerator(step_ms=20)
    gradients = torch.zeros(1000, device="cpu" if gpu.emulated else "cuda")
    with cu.record() as trace:
        for batch in trace.batches(loader, ids="event_id"):
            gpu.step(gpu.upload(batch)).item()
            with cu.stage("wait", lane="other ranks"):
                dist.all_reduce(gradients)  # DistributedDataParallel does it in backward()
                gpu.synchronize()
    save_rank(trace, traces)


# %% [markdown]
# And this is a script. `torchrun` starts it three times, and tells each process through its environment which rank it is, and of how many.

# %%
# %%worker_module train_all
import sys

from rank_loop import train
from torch import distributed
from torch.utils.data import DataLoader

from course_utils.loading.events import MemmapEvents, pad_collate

if __name__ == "__main__":
    folder, traces = sys.argv[1:]
    distributed.init_process_group()
    train(DataLoader(MemmapEvents(folder), 64, shuffle=True, collate_fn=pad_collate), traces)
    distributed.destroy_process_group()

# %%
cu.predict(
    "11a",
    "2,000 events and three ranks, each with a loader that shuffles. What share of all the events "
    "that they serve in an epoch is distinct?",
    unit="%",
)

# %%
import tempfile

from course_utils.measure.ranks import load_ranks
from course_utils.teaching.notebook import torchrun

events = cu.data_path("events", "S")  # the small set: 2,000 events
room = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
torchrun("train_all", events, f"{room.name}/all", ranks=3)

# %%
ranks = load_ranks(f"{room.name}/all")
print(ranks)
cu.reveal("11a", 100 * len(ranks.served) / ranks.served.total())

# %% [markdown]
# Every rank reads everything. Nothing fails, all GPUs are busy, and three of them take as long for an epoch as one would.
#
# ## Who serves what
#
# `DistributedSampler` gives each rank a share of the samples. It asks the process group for the rank, or takes it as an argument, so
# that we can look at all shares without starting a process.

# %%
cu.predict("11b", "10 samples, four ranks, an epoch. How many samples are served?", unit="samples")

# %%
cu.predict("11c", "A rank goes through its sampler three times. How many different orders?")

# %%
from torch.utils.data import DistributedSampler

from notebooks.stories.rank_shares import plot_shares

shares = [list(DistributedSampler(range(10), num_replicas=4, rank=rank)) for rank in range(4)]
plot_shares(shares)

# %%
cu.reveal("11b", sum(map(len, shares)))

# %%
sampler = DistributedSampler(range(10), num_replicas=4, rank=0)
as_it_is = [list(sampler) for epoch in range(3)]
told = []
for epoch in range(3):
    sampler.set_epoch(epoch)
    told.append(list(sampler))
print("as it is:", *as_it_is, "\ntold:    ", *told)
cu.reveal("11c", len(set(map(tuple, as_it_is))))

# %% [markdown]
# Two things that it does without telling:
#
# - **It pads.** All ranks need equally many batches, as you will see below, so the first samples of the order are served once more. Of a
#   million, three more do no harm. In an evaluation they do: some samples count twice. (`drop_last=True` leaves some out instead.)
# - **It repeats the order.** It shuffles with `seed + epoch`, and does not know the epoch until it is told by `set_epoch`. The example in the
#   lecture notes that this course began with does not tell it, and neither do many repositories.
#
# Workers need no care here: a sampler stays in the main process of its rank. A *stream* is another matter, since it is copied into every worker of
# every rank. There the shards are dealt out to both, as in exercise 5.1; `EventShards` and `stream_shards` do so by themselves.
#
# ### Exercise 11.1 · 10 min · ●●○
#
# For an evaluation, write a sampler that neither pads nor drops. Your targets:
#
# - all ranks together serve each sample exactly once, however many there are,
# - the shares differ by one sample at most, and `len()` says how many a rank has,
# - each epoch has a new order, and the same epoch the same one again, after a restart too,
# - the random numbers of the training stay as they are.
#
# <details><summary>Hint 1: one order for all</summary>
#
# Every rank shuffles *all* samples, with a generator of its own whose seed all ranks share: `np.random.default_rng([self.seed, self.epoch])`.
#
# </details>
# <details><summary>Hint 2: shares</summary>
#
# Deal the order out like cards, as you did with shards.
#
# </details>


# %%
# %%worker_module my_sampler
import numpy as np
from torch.utils.data import Sampler


class EverySampleOnce(Sampler):
    def __init__(self, n_samples, rank, world_size, seed=0):
        self.n_samples, self.rank, self.world_size = n_samples, rank, world_size
        self.seed, self.epoch = seed, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        ### BEGIN SOLUTION
        order = np.random.default_rng([self.seed, self.epoch]).permutation(self.n_samples)
        return iter(order[self.rank :: self.world_size].tolist())
        ### END SOLUTION

    def __len__(self):
        ### BEGIN SOLUTION
        return len(range(self.rank, self.n_samples, self.world_size))
        ### END SOLUTION


# %%
cu.check("11.1", EverySampleOnce)

# %% [markdown] tags=["instructor"]
# **Instructor.** 11a: whoever expects a failure says 100. 11b: 10 is what one would want. 11c: the name of the argument `shuffle=True` says
# three. In exercise 11.1 the tempting wrong answers shuffle within the share, so that a rank meets the same samples for ever, or call
# `torch.manual_seed`.

# %% [markdown]
# ## The slowest rank sets the pace
#
# Three nodes train together. Two have staged the events on their disks (notebook 07). On the third the copy is missing: its rank reads
# from a file server, and needs longer for a batch than for a step.

# %%
# %%worker_module train_shares
import sys

from rank_loop import train
from torch import distributed
from torch.utils.data import DataLoader, DistributedSampler

import course_utils as cu
from course_utils.loading.events import MemmapEvents, pad_collate

if __name__ == "__main__":
    folder, traces = sys.argv[1:]
    distributed.init_process_group()
    storage = "NFS" if distributed.get_rank() == 2 else "laptop SSD"
    events = MemmapEvents(folder, fs=cu.slow_storage(folder, storage, cache_mb=0))
    loader = DataLoader(events, 32, sampler=DistributedSampler(events), collate_fn=pad_collate)
    train(loader, traces)
    distributed.destroy_process_group()

# %%
cu.predict("11d", "What share of the time does the GPU of a rank *with* a copy compute?", unit="%")

# %%
torchrun("train_shares", events, f"{room.name}/shares", ranks=3)

# %%
ranks = load_ranks(f"{room.name}/shares")
ranks.timeline()

# %%
cu.reveal("11d", 100 * ranks.traces[0].summary().au)

# %% [markdown]
# The two quick ranks stand at the meeting and wait, in every step. Their own loaders are fine, and to make them faster would gain nothing.
# On real GPUs `nvidia-smi` does not show it: waiting is a kernel of NCCL, which runs, so that a waiting GPU counts as busy.
#
# So look for the rank first, and for the stage afterwards. Whoever comes last to a meeting waits for nobody:

# %%
print(ranks)

# %% [markdown]
# ## Uneven ends
#
# The same again with a stream. Seven shards are dealt out to three ranks, so one of them has a shard more than the others. At the end of
# the epoch all ranks meet to write a checkpoint.

# %%
# %%worker_module train_shards
import sys
from datetime import timedelta

from rank_loop import train
from torch import distributed
from torch.utils.data import DataLoader

from course_utils.loading.events import pad_collate
from course_utils.loading.stream import EventShards

if __name__ == "__main__":
    distributed.init_process_group(timeout=timedelta(seconds=5))  # rather than half an hour
    stream = EventShards(sys.argv[1], shards=7, buffer=100)
    try:
        train(DataLoader(stream, 32, collate_fn=pad_collate), sys.argv[2])
        distributed.barrier()  # before the checkpoint
    except RuntimeError as error:
        print(f"rank {distributed.get_rank()} of {stream.count_batches(32)} batches: {error}")

# %%
torchrun("train_shards", events, f"{room.name}/shards", ranks=3)

# %% [markdown]
# No rank ends by itself. The one with more batches waits for the gradients of the others, and they wait for it at the
# checkpoint. Without `timeout=` Gloo would wait for 30 minutes and NCCL for ten, all GPUs "busy". What comes next decides how it looks: if
# it were a second epoch, the ranks would go on, and average gradients of different epochs.
#
# There are four ways out:
#
# | Way | Costs |
# |---|---|
# | as many shards, of equal size, for each place (exercise 10.2) | nothing; but sizes are rarely equal |
# | a fixed number of steps: `all_reduce` the `MIN` of the ranks' numbers of batches | the last batches; every rank has to know its number |
# | [`Join`](https://docs.pytorch.org/tutorials/advanced/generic_join.html): who is through goes on meeting the others | steps with fewer ranks at the end |
# | ask before every step whether all have a batch | a small meeting more in each step; the last batches |
#
# ### Exercise 11.2 · 10 min · ●●○
#
# Write the last one. `in_step(batches)` yields the batches of this rank, as long as *every* rank has another one. Your targets:
#
# - all ranks take as many steps as the one with the fewest batches, even if that is none,
# - no rank waits for another in vain,
# - `batches` may be a stream that has no `len()`, and is asked for one batch at a time,
# - a batch may be anything.
#
# <details><summary>Hint 1: how to ask all</summary>
#
# `dist.all_reduce(tensor, dist.ReduceOp.MIN)` leaves the minimum over all ranks in `tensor`, on every rank.
#
# </details>
# <details><summary>Hint 2: how to notice the end</summary>
#
# `next(mine, END)` returns `END` where there is no batch left. Compare with `is`.
#
# </details>
# <details><summary>Hint 3: who has none</summary>
#
# A rank without a batch must say so before it leaves: it takes part in the meeting, with a 0.
#
# </details>


# %%
# %%worker_module my_steps
import torch
import torch.distributed as dist

END = object()


def in_step(batches):
    ### BEGIN SOLUTION
    mine = iter(batches)
    while True:
        batch = next(mine, END)
        have_one = torch.tensor(0 if batch is END else 1)  # on GPUs: device="cuda"
        dist.all_reduce(have_one, dist.ReduceOp.MIN)
        if not have_one:
            return
        yield batch
    ### END SOLUTION


# %%
cu.check("11.2", in_step)

# %% [markdown] tags=["instructor"]
# **Instructor.** 11d: the tempting answer is that of a rank alone, 90 or so. Ask what a faster disk in rank 0 would gain. In exercise 11.2 the
# tempting wrong answer returns as soon as the rank itself has no batch, before it has told the others.

# %% [markdown]
# ## Survive a restart
#
# This section is being written.

# %% [markdown]
# ## You now can
#
# - say which rank serves which sample, and count it,
# - find the rank that all the others wait for, and the stage that makes it late,
# - end an epoch without a hang, however uneven the shards are.

# %% [markdown]
# # Extra
#
# The core ends here. No later notebook's core needs what follows, and each section stands for itself.
#
# ## Beyond one machine
#
# This section is being written.
