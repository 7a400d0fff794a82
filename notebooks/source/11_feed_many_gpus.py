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


def train(loader):
    gpu = rank_accelerator(step_ms=20)
    gradients = torch.zeros(1000, device="cpu" if gpu.emulated else "cuda")
    with cu.record() as trace:
        for batch in trace.batches(loader, ids="event_id"):
            gpu.step(gpu.upload(batch)).item()
            with cu.stage("wait", lane="other ranks"):
                dist.all_reduce(gradients)  # DistributedDataParallel does it in backward()
                gpu.synchronize()
    return trace


# %% [markdown]
# And this is a script. `torchrun` starts it three times, and tells each process through its environment which rank it is, and of how many.

# %%
# %%worker_module train_all
import sys

from rank_loop import train
from torch import distributed
from torch.utils.data import DataLoader

from course_utils.loading.events import MemmapEvents, pad_collate
from course_utils.measure.ranks import save_rank

if __name__ == "__main__":
    distributed.init_process_group()
    events = MemmapEvents(sys.argv[1])
    save_rank(train(DataLoader(events, 64, shuffle=True, collate_fn=pad_collate)), sys.argv[2])
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
# Every rank reads everything. Nothing fails, the GPUs are busy, and three of them take as long for an epoch as one would.
#
# ## Who serves what
#
# ### Exercise 11.1 is being written.
#
# ## The slowest rank sets the pace
#
# ## Uneven ends
#
# ### Exercise 11.2 is being written.

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
