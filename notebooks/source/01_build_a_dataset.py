# %% [markdown]
# # 01 · Build a Dataset and feed it to a DataLoader
#
# **You will do:** turn a folder of detector events into batches, and see a GPU wait for them.
#
# **You will learn**
#
# - to look at the data before you write a loader for them,
# - what PyTorch asks of a dataset, and how little that is,
# - to make batches of events that differ in length,
# - to split data without telling the network the answers.
#
# **You need:** Python and numpy. A CPU is enough. **Minutes:** {minutes}.

# %%
import course_utils as cu

cu.ready("01")

# %% [markdown] tags=["instructor"]
# **Instructor: plan.** Look (5), contract (4), batches (4), order (3), parts (3), whole batches (2),
# images (1), timeline (3). Exercises 6 + 5 + 6 + 3 minutes. Short of time: leave out 1.3.
#
# **Board.** One line from left to right: *index → sample → list of samples → batch*. Write over the
# arrows who does the work: sampler, `__getitem__`, `collate_fn`. Point at it all the time.
#
# **Needs saying.** Let everybody type a guess before the next cell is run. Wait for it.

# %% [markdown]
# ## Look first
#
# The data are simulated. A telescope of 5,160 light sensors in the ice sees particles pass. One
# event is a list of pulses. A pulse is a row: time (ns), charge, number of the sensor, and a flag.

# %%
import matplotlib.pyplot as plt
import numpy as np

from course_utils.loading.events import MemmapEvents, draw_event, read_labels, read_sensors

plt.style.use("course_utils.plots")  # readable on light and on dark pages
folder = cu.data_path("events")
labels, sensors = read_labels(folder), read_sensors(folder)
offsets = np.load(folder / "npy" / "offsets.npy")
n_pulses = np.diff(offsets)
print(f"{len(labels):,} events, {offsets[-1]:,} pulses, {len(set(labels.run_id))} runs")

# %% [markdown]
# Colour is time, size is charge. A *track* crosses the detector; a *cascade* is a ball of light.

# %%
all_events = MemmapEvents(folder)
track, cascade = (np.where(labels.kind == kind, n_pulses, 0).argmax() for kind in (1, 0))
draw_event(all_events[track], sensors)

# %%
draw_event(all_events[cascade], sensors)

# %% [markdown]
# How long are the events? This one question decides how you make batches.

# %%
figure, axes = plt.subplots(figsize=(7, 2.5))
axes.hist(n_pulses, bins=np.geomspace(n_pulses.min(), n_pulses.max(), 60))
axes.set(xscale="log", yscale="log", xlabel="pulses in an event", ylabel="events")
axes.set_title(f"median {np.median(n_pulses):.0f}, longest {n_pulses.max():,}")
plt.close()  # the next line shows the figure; without this it would be shown twice
figure

# %% [markdown]
# The longest event is tens of times longer than the typical one. Such a tail is normal in physics.
# Remember it: one giant sample can hold up a whole batch.
#
# Next question: are the first 64 events on the disk like all the others?

# %%
cu.predict(
    "01a",
    "How many times higher is the mean energy of all events than that of the first 64?",
    unit="times",
)

# %%
energy_gev = 10.0**labels.energy
cu.reveal("01a", energy_gev.mean() / energy_gev[:64].mean())

# %%
positions = np.linspace(0, len(labels) - 64, 30).astype(int)
orders = {"as on disk": np.arange(len(labels)), "shuffled": np.random.permutation(len(labels))}
figure, panels = plt.subplots(1, 2, figsize=(9, 2.6), sharey=True, layout="constrained")
for panel, (name, order) in zip(panels, orders.items(), strict=True):
    means = [labels.energy[order[first : first + 64]].mean() for first in positions]
    panel.plot(labels.energy[order], ",", color="0.6")
    panel.plot(positions, means, "o", ms=4)
    panel.set(title=name, xlabel="position", xticks=[0, len(labels)])
    panel.xaxis.set_major_formatter("{x:,.0f}")
panels[0].set_ylabel("log10 of the energy in GeV")
plt.close()
figure

# %% [markdown]
# Grey: events. Blue: means of batches of 64. The file is sorted by energy, as productions often are.
# Read it in this order, and every batch shows
# the network another small part of the world. So: **shuffle**. We come back to this.

# %% [markdown] tags=["instructor"]
# **Instructor.** Most guess 1 for 01a, "why should they differ?". Some know that productions are
# sorted and guess 10 to 100. Ask: what would the loss curve look like? A sawtooth, once per epoch.
# If all you see is one blob in the displays: the brightest events were taken; typical ones are dim.

# %% [markdown]
# ## The contract
#
# A dataset answers one question: *what is sample number 17?* That is `__getitem__`. PyTorch asks for
# no more. A list can do it.

# %%
from torch.utils.data import DataLoader

list(DataLoader([3, 1, 4, 1, 5], batch_size=2))

# %% [markdown]
# `__len__` is optional. Without it a loader has to be told which numbers to ask for, and cannot
# shuffle. Here is a dataset without a length, and without a base class.
#
# `%%worker_module` writes the cell to a file and imports it. Workers are other processes: they can
# import a file, but they cannot see your notebook.


# %%
# %%worker_module squares
class Squares:
    def __getitem__(self, index: int) -> int:
        return index * index


# %%
list(DataLoader(Squares(), batch_size=4, sampler=range(8)))

# %% [markdown]
# Now a real one. Every event is also there as a small `.npz` file. `__init__` only notes where the
# files are. `__getitem__` opens one, when it is asked for: that is *lazy* loading.

# %%
# %%worker_module event_files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset


class EventFiles(Dataset):
    def __init__(self, folder: Path):
        self.paths = [str(path) for path in sorted(folder.glob("npz/*/*.npz"))]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> dict[str, Any]:
        with np.load(self.paths[index]) as file:
            energy = np.log10(file["event"]["energy_gev"])
            return {"pulses": torch.from_numpy(file["pulses"]), "energy": float(energy)}


# %%
events = EventFiles(folder)
sample = events[17]
print(f"{len(events):,} events; event 17 has {len(sample['pulses']):,} pulses, beginning with")
sample["pulses"][:3]

# %% [markdown]
# ### When loading everything is right
#
# The other way: read all of it in `__init__`.

# %%
# %%worker_module events_in_memory
from pathlib import Path

import numpy as np
from torch.utils.data import Dataset


class EventsInMemory(Dataset):
    def __init__(self, folder: Path):
        self.pulses = np.load(folder / "npy" / "pulses.npy")
        self.offsets = np.load(folder / "npy" / "offsets.npy")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> np.ndarray:
        return self.pulses[self.offsets[index] : self.offsets[index + 1]]


# %% [markdown]
# Under spawn and forkserver each worker gets a *copy*: the dataset is pickled and sent to it. What
# does that cost?

# %%
import pickle

for dataset in (events, EventsInMemory(folder)):
    megabytes = len(pickle.dumps(dataset)) / 1e6
    print(f"{type(dataset).__name__:15} {megabytes:8.2f} MB for each worker")

# %% [markdown]
# Our events would fit into memory easily. Those of a real experiment, once for each worker, would
# not.
#
# A case from real life. The BabyLM challenge trains language models on 10 or 100 million words. The
# dataset class of one published entry, BabyLlama, reads all of it in `__init__`, against every rule
# of thumb. Right or wrong? Debate it with your neighbour, then do the sum.

# %%
for tokens in (10_000_000, 100_000_000):
    for dtype in (np.uint16, np.int64):
        megabytes = tokens * np.dtype(dtype).itemsize / 1e6
        print(f"{tokens:>11,} tokens as {np.dtype(dtype).name:6} {megabytes:5.0f} MB")

# %% [markdown]
# Right: next to the memory of any machine with a GPU this is little, and from then on no disk can
# slow you down. The rule: **if the data fit into memory once for each process, load them. If not, keep
# `__init__` light and `__getitem__` lazy.**

# %% [markdown] tags=["instructor"]
# **Instructor: debate, 3 minutes.** Show of hands first. For: simple, fast, small. Against: the copies
# under spawn; eight bytes for a token that needs two; the Python list while it is being built.
# Good end: "light `__init__`" is a consequence of size, not a law.

# %% [markdown]
# ## Batches
#
# The loader fetches samples and gives the list to `collate_fn`, which makes one batch of it. The
# default stacks them. Our events differ in length. This error is meant to happen:

# %%
import sys
import traceback

try:
    next(iter(DataLoader(events, batch_size=4)))
except RuntimeError:
    traceback.print_exc(limit=-1, file=sys.stdout)

# %% [markdown]
# The usual cure has two parts. **Pad** all events to the longest one of the batch. Keep a **mask** that
# says which pulses are real, so that the model can ignore the rest.

# %%
cu.predict("01b", "In a shuffled batch of 64 padded events, how much is padding?", unit="%")

# %% [markdown]
# ### Exercise 1.1 · 6 min · ●●○
#
# Write the `collate_fn`. It gets samples as `EventFiles` makes them and returns a dict:
#
# - `"pulses"`: float32, shape (B, T, 4), where T is the length of the longest event *of this batch*,
#   zeros after the end of an event,
# - `"mask"`: bool, shape (B, T), true where there is a pulse,
# - `"energy"`: float32, shape (B,).
#
# Target: every mixture of lengths becomes one batch, also in a worker.
#
# <details><summary>Hint 1: padding</summary>
#
# `torch.nn.utils.rnn.pad_sequence` pads a list of tensors. Look at its `batch_first`.
#
# </details>
#
# <details><summary>Hint 2: the mask</summary>
#
# Take it from the lengths, not from the values: a real pulse may contain zeros. Compare
# `torch.arange(T)` with the lengths as a column, `lengths[:, None]`.
#
# </details>

# %%
# %%worker_module my_collate
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence


def pad_events(samples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Make one batch of events of different lengths."""
    ### BEGIN SOLUTION
    pulses = pad_sequence([sample["pulses"] for sample in samples], batch_first=True)
    lengths = torch.tensor([len(sample["pulses"]) for sample in samples])
    return {
        "pulses": pulses,
        "mask": torch.arange(pulses.shape[1]) < lengths[:, None],
        "energy": torch.tensor([sample["energy"] for sample in samples]),
    }
    ### END SOLUTION


# %%
cu.check("01.1", pad_events)

# %% [markdown]
# Compare with ours. `course_utils` is part of the course: read it.

# %%
import inspect

from course_utils.loading.events import NpzEvents, pad_collate

print(inspect.getsource(pad_collate))

# %%
loader = DataLoader(all_events, batch_size=64, shuffle=True, collate_fn=pad_collate)
padding = [1 - batch["mask"].float().mean().item() for batch in loader]
cu.reveal("01b", 100 * np.mean(padding))

# %% [markdown]
# One long event makes the whole batch wide. To waste less, crop long events, or put events of
# similar length together (and be careful: length and energy go together). There are also batches
# without padding: `torch.nested.nested_tensor(list_of_events, layout=torch.jagged)`. Not every layer
# takes them yet.

# %% [markdown] tags=["instructor"]
# **Instructor.** Guesses for 01b gather around 20 to 30 %; the tail of the histogram is forgotten.
# What goes wrong in 1.1: the mask made from values (`pulses != 0`), the mask upside down (PyTorch's
# `key_padding_mask` means the opposite of ours), padding to a fixed width.

# %% [markdown]
# ## Order
#
# A *sampler* decides which numbers the loader asks for. `shuffle=True` chooses one that draws every
# number once, in a new order each epoch.

# %%
import torch

for shuffle in (False, True):
    loader = DataLoader(range(len(events)), batch_size=8, shuffle=shuffle)
    print(next(iter(loader)).tolist())

# %% [markdown]
# `drop_last=True` leaves out the last batch if it is not full. Count what is lost.

# %%
for drop_last in (False, True):
    loader = DataLoader(range(len(events)), batch_size=64, drop_last=drop_last)
    served = torch.cat(list(loader)).tolist()
    lost = sorted(set(range(len(events))) - set(served))
    print(f"{drop_last=}: {len(loader)} batches, {len(lost)} events lost, first of them {lost[:3]}")

# %% [markdown]
# With shuffling these are others in each epoch, and you may not care. Without, they are always the
# same: here the events with the highest energies. So: drop in training, never in validation.
#
# Another sampler draws *with replacement*, each number as likely as any other:

# %%
cu.predict("01c", "You draw N times from N events. How many of them do you get to see?", unit="%")

# %%
from torch.utils.data import WeightedRandomSampler

draws = list(WeightedRandomSampler(torch.ones(len(events)), num_samples=len(events)))
cu.reveal("01c", 100 * len(set(draws)) / len(events))

# %% [markdown]
# The chance that N draws all miss an event is (1 − 1/N)^N, which is close to 1/e. So an "epoch" of this
# kind shows 1 − 1/e of the data, or 63 %. All other draws are repeats.

# %% [markdown] tags=["instructor"]
# **Instructor.** 01c: about half of a class says 50 or 100. Physicists know 1/e and enjoy it.

# %% [markdown]
# ## Parts
#
# `ConcatDataset` puts datasets end to end. `Subset` takes some numbers of one. `random_split` makes
# random subsets, one for training and one for validation.

# %%
from torch.utils.data import ConcatDataset, Subset, random_split

twice = ConcatDataset([events, events])
few = Subset(events, [3, 1, 4])
train, valid = random_split(events, [0.8, 0.2])
print(f"{len(twice)=:,}, {len(few)=}, {len(train)=:,}, {len(valid)=:,}")

# %% [markdown]
# Looks fair. But the events come from *runs*, of a few hours each. Within a run the conditions are
# the same: noise, dead strings, calibration.

# %%
cu.predict("01d", "How many of the runs in validation are also in training?", unit="%")

# %%
runs_train = set(labels.run_id[train.indices])
runs_valid = set(labels.run_id[valid.indices])
cu.reveal("01d", 100 * len(runs_valid & runs_train) / len(runs_valid))

# %% [markdown]
# No event is in both, and yet nothing in validation is new. What can a network gain by knowing the
# run?

# %%
runs = np.unique(labels.run_id)
share = [np.mean(labels.kind[labels.run_id == run] == 0) for run in runs]
figure, axes = plt.subplots(figsize=(7, 2.2))
axes.bar(runs, 100 * np.array(share))
axes.axhline(100 * np.mean(labels.kind == 0), color="C1", ls="--")
axes.set(xlabel="run", ylabel="cascades (%)")
plt.close()
figure

# %% [markdown]
# Recognise the run by its noise, and you have a good guess of the answer before you look at the
# event. The validation score will be too good, and the next run will tell you so. Split by **run**,
# or by patient, or by day: by whatever your samples have in common.

# %% [markdown]
# ### Exercise 1.2 · 5 min · ●●○
#
# Split by run. Return two arrays of event numbers (positions), for training and for validation.
#
# Target: no run in both, every event in exactly one, about `share` of the *runs* in validation, and
# another seed gives another split.
#
# <details><summary>Hint 1: what to shuffle</summary>
#
# `np.unique(run_id)` gives the runs. Shuffle those, not the events.
#
# </details>
#
# <details><summary>Hint 2: from runs to events</summary>
#
# `np.isin(run_id, valid_runs)` is true for the events of these runs. `np.flatnonzero` turns it into
# positions.
#
# </details>


# %%
def split_by_run(run_id: np.ndarray, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of the events for training and for validation."""
    ### BEGIN SOLUTION
    runs = np.random.default_rng(seed).permutation(np.unique(run_id))
    valid_runs = runs[: round(share * len(runs))]
    in_valid = np.isin(run_id, valid_runs)
    return np.flatnonzero(~in_valid), np.flatnonzero(in_valid)
    ### END SOLUTION


# %%
cu.check("01.2", split_by_run)

# %% [markdown] tags=["instructor"]
# **Instructor.** 01d: many say 0, "it is a split"; some say 20. It is 100.
# What goes wrong in 1.2: cutting the sorted file (validation gets the highest energies, and every
# run), returning runs instead of positions, forgetting the seed.

# %% [markdown]
# ## Ask for whole batches
#
# The loader asks for samples one by one, unless the dataset has `__getitems__`. Then it hands over
# all numbers of a batch at once. That pays where every request has its price: databases, HDF5, the
# network.
#
# We put the events on an **emulated** Lustre file system, as busy as that of a cluster on a Monday. It
# is a model on top of your disk: it takes its time and counts what it is asked for. Its cache is
# switched off here.

# %%
# %%worker_module pulse_file
from typing import Any

import numpy as np

HEADER, ROW = 128, 16  # bytes before the first pulse in this .npy file, and bytes of a pulse


class PulseFile:
    def __init__(self, storage: Any, path: str, offsets: np.ndarray):
        self.storage, self.path, self.offsets = storage, path, offsets

    def __getitem__(self, index: int) -> np.ndarray:
        return self.read(index, index + 1)[0]

    def read(self, first: int, last: int) -> list[np.ndarray]:
        """Return the events first, ..., last - 1 by one request."""
        bounds = self.offsets[first : last + 1] - self.offsets[first]
        with self.storage.open(self.path) as file:
            file.seek(HEADER + ROW * self.offsets[first])
            rows = np.frombuffer(file.read(ROW * bounds[-1]), "<f4").reshape(-1, 4)
        return np.split(rows, bounds[1:-1])


# %% [markdown]
# A *block shuffle* draws blocks of neighbours. Here a batch is eight blocks of eight events. The storage
# counts files opened, sizes asked for (*look-ups*), and reads (*requests*).

# %%
blocks = np.random.permutation(len(events) // 8)[:8]
batch = np.random.permutation([8 * b + i for b in blocks for i in range(8)]).tolist()
storage = cu.slow_storage(folder, "busy Lustre", cache_mb=0)
pulse_file = PulseFile(storage, "npy/pulses.npy", offsets)
loader = DataLoader(pulse_file, batch_sampler=[batch], collate_fn=list)
next(iter(loader))
print(storage.counters())

# %% [markdown]
# ### Exercise 1.3 · 6 min · ●●●
#
# Write `__getitems__`. It gets the numbers of a batch and returns the events as a list, in the order
# asked for.
#
# Target: at most a third of the requests for such a batch, and no more than twice the bytes.
#
# <details><summary>Hint 1: the idea</summary>
#
# Sort the numbers. Neighbours can be read by one `self.read(first, last)`. Keep what comes in a dict,
# and hand it out in the order asked for.
#
# </details>
#
# <details><summary>Hint 2: find the blocks</summary>
#
# `order = np.unique(indices)` is sorted. `np.split(order, np.flatnonzero(np.diff(order) > 1) + 1)` cuts
# it where a number is missing.
#
# </details>

# %%
# %%worker_module batched_pulse_file
import numpy as np
from pulse_file import PulseFile


class BatchedPulseFile(PulseFile):
    def __getitems__(self, indices: list[int]) -> list[np.ndarray]:
        """Return the events `indices`, in this order."""
        ### BEGIN SOLUTION
        found: dict[int, np.ndarray] = {}
        order = np.unique(indices)
        for block in np.split(order, np.flatnonzero(np.diff(order) > 1) + 1):
            first, last = int(block[0]), int(block[-1]) + 1
            found.update(zip(range(first, last), self.read(first, last), strict=True))
        return [found[index] for index in indices]
        ### END SOLUTION


# %%
cu.check("01.3", BatchedPulseFile)

# %% [markdown]
# Compare with ours: `neighbours` in `course_utils/loading/events/contract.py`. It also reads along over small
# gaps. Why can that be faster, although it reads more?

# %% [markdown] tags=["instructor"]
# **Instructor.** Answer to the question: a request waits 10 ms on this storage, in which 5 MB could
# have come. What goes wrong in 1.3: a loop over `self[i]` (one call, as many requests); the result
# in sorted order; `set` loses what was asked for twice; reading everything between the first and
# the last.

# %% [markdown]
# ## Images
#
# For pictures in class folders nothing is left to write. `ImageFolder` finds them.

# %%
from torchvision import transforms
from torchvision.datasets import ImageFolder

images = ImageFolder(cu.data_path("images"), transform=transforms.ToTensor())
pictures, classes = next(iter(DataLoader(images, batch_size=8, shuffle=True)))
figure, panels = plt.subplots(1, 8, figsize=(10, 1.5))
for panel, picture, label in zip(panels, pictures, classes, strict=True):
    panel.imshow(picture.permute(1, 2, 0))
    panel.set(title=images.classes[label], xticks=[], yticks=[])
plt.close()
figure

# %% [markdown]
# ### Exercise 1.4 · 3 min · ●○○
#
# Some classes are rare. Count the pictures of each class, by its name, without opening one. Then
# give *every picture* a weight, so that `WeightedRandomSampler` draws all classes equally often.
#
# Target: each class has the same sum of weights.
#
# <details><summary>Hint</summary>
#
# `images.targets` has the class number of each picture, `images.classes` the names. A picture of a
# class of n gets the weight 1/n.
#
# </details>

# %%
from collections import Counter

counts = Counter(images.classes[target] for target in images.targets)  ### SOLUTION
weights = [1 / counts[images.classes[target]] for target in images.targets]  ### SOLUTION

# %%
cu.check("01.4", counts, weights)

# %% [markdown]
# ## Your loader feeds a GPU
#
# The same kind of dataset, one file per event, but ours: it can read from an emulated file server
# (NFS). If there is no GPU here, it is **emulated** too: it takes the time, and computes nothing. The
# loop is the one of every tutorial.

# %%
cu.predict("01e", "How much of the time will the GPU be busy?", unit="%")

# %%
from itertools import islice

gpu = cu.get_accelerator(step_ms=30)
events = NpzEvents(folder, fs=cu.slow_storage(folder, "NFS"))
loader = DataLoader(events, batch_size=32, shuffle=True, collate_fn=pad_collate)
with cu.record() as trace:
    for batch in islice(trace.batches(loader), 30):
        loss = gpu.step(gpu.upload(batch))
        loss.item()

# %%
trace.timeline()

# %%
cu.reveal("01e", 100 * trace.summary().utilisation)

# %% [markdown]
# Each bar is work, each gap on the `gpu` lane is money. While the main process reads and decodes, the
# GPU waits. While the GPU computes, nobody reads. Nothing here is wrong, and yet most of the time is
# lost.
#
# ## You now can
#
# - look at data before loading them, and say if a batch is representative,
# - write a dataset, a `collate_fn` and a split that can be trusted,
# - count the requests that a loader makes,
# - read a timeline.
#
# The next part of the course explains who waits for whom, and what brings the GPU to work.

# %% [markdown] tags=["instructor"]
# **Instructor.** Guesses for 01e lie between 50 and 90. Let the picture stand for a while. Ask what
# could run at the same time, and do not answer: that is the next notebook.
