# %% [markdown]
# # 14 · Feed physicists' data
#
# {here: read, decode}
#
# **You will do:** read jets from ROOT files over a network in several ways, mix signal and background, and use event
# weights.
#
# **You will learn:**
#
# - what it costs to read one jet of a ROOT file, and a whole *cluster* of jets; <!-- 14a -->
# - to predict how well clusters mix, from their number in memory; <!-- 14b 14.1 -->
# - when copying or conversion pays; <!-- 14c -->
# - which changes of event weights are allowed. <!-- 14d 14.2 -->
#
# **You need:** notebooks 05 and 06. A CPU is enough.
#
# **Minutes:** {minutes}.

# %%
import course_utils as cu

cu.ready("14")

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Script.**
#
# - *5 min* **Your files.** Ask who has ROOT files, where they are, and who knows the size of a cluster.
# - *5 min* **One jet or a cluster.** Prediction 14a.
# - *19 min* **Mix clusters.** Prediction 14b, then the two variances on the board, then exercise 14.1.
# - *7 min* **Copy or convert once.** Prediction 14c, then the picture.
# - *13 min* **Weights.** Prediction 14d, then exercise 14.2 in pairs.
#
# **Leave out.** *Copy or convert once*. Say that both cost about one epoch of reading, and show the picture.
#
# **Board.** Draw eight files as bars, two red and six blue, and cut them into clusters. Let somebody draw lots for eight
# clusters. How many are red? This scatter is the subject of the notebook.

# %% [markdown]
# ## Your files
#
# Suppose your data are in files of [ROOT](https://root.cern), the framework of particle physics. Signal and background
# are in separate files, each event has a weight, and it all sits in a computing center on another continent. So you read
# it over [XRootD](https://xrootd.org), a protocol for remote files.
#
# Let's sort out three words before they ruin your split. Two protons meet in a *collision*, an *event* is what the
# detector records of it, and a *jet* is a narrow bundle of particles in it, so an event can have several jets. Our files
# imitate [JetClass](https://doi.org/10.5281/zenodo.6619768), an open data set, and have one row per jet: a few numbers,
# and a list of particles whose length varies. If you split your own data into training and test, split by *event number*
# (such as `event % 10 == 0` for the test), because jets of one event have too much in common. Don't split by file, because
# a file holds one process. The Python library uproot reads such files:

# %%
import uproot

folder = cu.data_path("collisions", "S") / "ttree"  # the small set: 8,000 jets
for path in sorted(folder.glob("*.root")):
    tree = uproot.open(path)["tree"]
    print(f"{path.name:18} {tree.num_entries:,} jets, {path.stat().st_size / 1e3:.0f} kB")
print(*tree.keys(), sep=", ")

# %% [markdown]
# A ROOT file contains a table, called a **TTree**. Each column is cut into **baskets**, which are compressed, so you
# read a basket as a whole or not. At certain rows the baskets of all columns begin and end together, and the
# rows in between form a **cluster**. Remember this word, because most of the notebook is about it. The course's
# `RootFiles` reads clusters, and only the columns that you name. Here it reads from an emulated storage system that
# takes 100 ms per request. <!-- given -->

# %%
from course_utils.hardware.storage import VirtualClock
from course_utils.loading.root_files import RootFiles

PARTICLES = ["part_energy", "part_deta", "part_dphi", "part_charge"]
storage = cu.slow_storage(folder, "XRootD")
clock = VirtualClock(storage)  # adds up the waits, so that you need not wait
paths = sorted(folder.glob("*.root"))
jets = RootFiles(paths, PARTICLES, ["label_Hbb", "weight"], fs=storage)
print(f"{len(jets):,} jets in {len(jets.clusters)} clusters, such as {jets.clusters[0]}")

# %% [markdown]
# uproot returns *awkward arrays*, whose rows have different lengths, and torch doesn't accept them. Which form does
# your model want? With variable-length attention or scatter operations, it takes two ordinary arrays: the *flat values*
# of all particles, and the *offsets* at which the jets begin. ParT and ParticleNet take padded arrays with a mask, cut
# at the 128 (or 40) particles of highest pT, <!-- given --> and ParT's bias for pairs of particles works only in that
# form. Store values and offsets anyway. You can still pad each batch, as in notebook 01.

# %%
import awkward as ak
import numpy as np

energy = uproot.open(paths[0])["tree"]["part_energy"].array(entry_stop=4)
flat = ak.flatten(energy).to_numpy()  # without a loop over jets
offsets = np.cumsum([0, *ak.num(energy)])
print(energy.type, "->", flat.dtype, flat.shape, "offsets", offsets)

# %% [markdown]
# ## One jet or a whole cluster
#
# A shuffled `DataLoader` asks for one jet after another. `ClusterStream` reads whole clusters in random order, and
# serves their jets from the shuffle buffer that you know from notebook 05. Both read in one process here, and
# `RaggedCollate` makes a batch of flat values and offsets. The first way looks slow, but can't you just add workers?

# %%
cu.predict(
    "14a",
    "A step takes 20 ms for 64 jets. How many workers must read jet by jet, so that no step waits?",
    unit="workers",
)

# %%
from torch.utils.data import DataLoader

from course_utils.loading.root_files import ClusterStream
from course_utils.stories.formats_compared.reading_root import read_epoch
from keepfed.loaders.ragged import RaggedCollate

entries = [jets.read(cluster).fields for cluster in jets.clusters]
names = "label_Hbb", "weight"
signal, weight = (np.concatenate([entry[name] for entry in entries]) for name in names)
collate = RaggedCollate("values")


# %%
shuffled = DataLoader(jets, 64, shuffle=True, collate_fn=collate)
alone = read_epoch(storage, shuffled, signal, memory=64, batches=2)  # scaled to an epoch


def read(memory):
    stream = DataLoader(ClusterStream(jets, buffer=memory), 64, collate_fn=collate)
    return read_epoch(storage, stream, signal, memory=125 + memory)  # a cluster and the buffer


one = read(memory=1)
for name, way in {"jet by jet": alone, "cluster by cluster": one}.items():
    print(f"{name}: {way.requests:,.0f} requests, {way.seconds:,.1f} s")

# %%
steps_s = 0.020 * len(jets) / 64  # in an epoch
cu.reveal("14a", alone.seconds / steps_s)

# %% [markdown]
# Each jet costs a request, and for each one the
# storage system sends a whole cluster, of which you use one row. Reading by cluster saves a factor that is the number
# of jets in a cluster, and in real files that's often thousands.
#
# ## Mix clusters
#
# Both ways serve every jet exactly once, so are we done? Signal and background are in different files, so a cluster
# contains only one of them.

# %%
cu.predict(
    "14b",
    "Read cluster by cluster, 64 jets come from one or two clusters, each all signal or all background. How many "
    "independent jets would tell you as much about the share of signal?",
    unit="jets",
)

# %%
print(one.mixing)
cu.reveal("14b", one.mixing.worth)

# %% [markdown]
# Suppose that a batch of B jets is drawn from k of K clusters, each of one class, and that p is the share of signal. Two
# things vary, and their variances add:
#
# - *which clusters* you hold: p(1 − p)/k · (1 − k/K), because no cluster is drawn twice in an epoch;
# - *which of their jets* you draw: about p(1 − p)/B, and a full shuffle has only this one.
#
# Divide the sum by the second line and take the root: the share of signal scatters √(1 + B/k·(1 − k/K)) times as much
# as in a full shuffle. For 64 jets from 16 of 64 clusters, this is √(1 + 4 · 3/4) = 2. So keep many clusters in memory.
# A shuffle buffer of 1,000 jets has space for 8 clusters of 125. But the jets that it holds come from about 16, because
# each new jet takes the place of a random one, so some old ones stay. Is that true? Don't ask a single epoch, because
# chance moves its scatter by 10 to 25 %. We draw twenty, without reading anything. <!-- given -->

# %%
from keepfed.loaders.stream import buffer_shuffle

classes = np.array([entry["label_Hbb"][0] for entry in entries])  # one per cluster


def scatter(memory, seed):
    rng = np.random.default_rng(seed)
    arriving = np.repeat(rng.permutation(classes), 125)  # a cluster has 125 jets
    batches = np.reshape([*buffer_shuffle(arriving, memory, rng)], (-1, 64))
    return batches.mean(axis=1).std() / (signal.std() / 64**0.5)


# %%
for memory in (500, 1000, 2000):
    epochs, k = [scatter(memory, seed) for seed in range(20)], 2 * memory / 125
    predicted = (1 + 64 / k * (1 - k / len(classes))) ** 0.5
    found = f"{np.mean(epochs):.2f} ± {np.std(epochs):.2f}"
    print(f"{memory:5} jets: scatter {found}, predicted {predicted:.2f}")

# %% [markdown]
# [weaver](https://github.com/hqucms/weaver-core), the training program of JetClass's authors, mixes in another way. It
# reads the same slice of *every* file, by default a hundredth, and shuffles these slices in memory. Every class is then
# present by construction, so this mixes better than as many random clusters. (Make the slices whole clusters, or you
# read the cut ones twice.) With random clusters, you need a shuffle like this one:
#
# ### Exercise 14.1 · 10 min · ●●○
#
# Write `mixed_batches`. It yields batches of event indices, as NumPy arrays. There are `len(sizes)` clusters, and
# cluster c has `sizes[c]` events. `read(c)` returns the indices of its events and costs one request. Your targets:
#
# - every event is served once, and every cluster is read once;
# - all batches have `batch_size` events, except for the last one;
# - at most `memory` events have been read but not yet yielded, which is enough for a cluster and a batch;
# - signal and background are mixed as well as this memory allows, in a new order for each `rng`.
#
# <details><summary>Hint 1</summary>
#
# Keep the held events in one array. Before you read a cluster, yield batches until the cluster fits.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Read the clusters in the order `rng.permutation(len(sizes))`, and permute the held events after each read.
#
# </details>


# %%
def mixed_batches(sizes, read, batch_size, memory, rng):
    ### BEGIN SOLUTION
    held = np.empty(0, int)
    for cluster in rng.permutation(len(sizes)):
        while len(held) + sizes[cluster] > memory:
            yield held[:batch_size]
            held = held[batch_size:]
        held = rng.permutation(np.concatenate([held, read(cluster)]))
    while len(held):
        yield held[:batch_size]
        held = held[batch_size:]
    ### END SOLUTION


# %%
cu.check("14.1", mixed_batches)

# %% [markdown]
# ## Copy or convert once
#
# Should you read across an ocean in each epoch? First try to **copy the ROOT files** to a disk nearby with `xrdcp` or
# rucio, or let your site's XCache keep them. `keepfed stage` (notebook 07) then copies them from there into memory. A
# copy costs about one epoch of reading and keeps the format, but you still decompress and mix clusters in each epoch.
#
# If that's too slow, convert: read everything once, and write it to your disk as flat values and offsets.
# `RaggedLoader` then draws every batch from all jets. A step takes 20 ms again. <!-- given --> Steps overlap with
# reading, but not with the conversion.

# %%
cu.predict(
    "14c",
    "Conversion reads every cluster once and writes one file. After how many epochs has it taken less "
    "time in total than the buffer of 2,000 jets?",
    unit="epochs",
)

# %%
import tempfile
from pathlib import Path

from keepfed.loaders.ragged import RaggedLoader

start = clock()
room = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
parts = [jets.read(cluster) for cluster in jets.clusters]  # with more data, write part by part
np.save(Path(room.name) / "values.npy", np.concatenate([part.values for part in parts]))
ends = np.cumsum([0, *np.concatenate([np.diff(part.offsets) for part in parts])])
fields = {"index": np.arange(len(jets)), "label_Hbb": signal, "weight": weight}
once_s = (clock() - start) / 1e9

# %%
local = RaggedLoader(Path(room.name) / "values.npy", ends, 64, fields=fields)
converted = read_epoch(storage, local, signal, memory=64)
buffered = read(memory=2000)
ways = {
    "random jets": alone,
    "cluster by cluster": one,
    "buffer of 2,000": buffered,
    "converted": converted,
}

# %%
from course_utils.stories.figures import drawing

with drawing(9, 3.4, columns=2) as (figure, (left, right)):
    for (name, way), mark in zip(ways.items(), "osD^", strict=True):
        key, epochs = f"{name} ({way.mixing.memory:,} jets in memory)", np.arange(5)
        (dot,) = left.plot(way.seconds, way.mixing.ratio, mark, label=key)
        total = once_s * (name == "converted") + epochs * max(way.seconds, steps_s)
        if name in ("buffer of 2,000", "converted"):
            right.plot(epochs, total, f"{mark}-", color=dot.get_color(), markersize=4)
    left.set(xscale="log", xlabel="seconds of reading in an epoch (log)", ylim=0)
    left.set(ylabel="scatter of the signal share\n(1 = full shuffle)")
    left.legend()
    right.set(xlabel="epochs", xticks=epochs, ylim=(0, 5 * one.seconds))
    right.set(ylabel="seconds in total")
figure


# %%
def break_even(workers):
    with_buffer = max(buffered.seconds / workers, steps_s)  # a buffer in each
    saved_s = with_buffer - max(converted.seconds, steps_s)  # in each epoch
    return int(once_s // saved_s) + 1 if saved_s > 0 else "never"


print("with 1 worker:", break_even(1), "  with 4 workers:", break_even(4))
cu.reveal("14c", break_even(1))

# %% [markdown]
# Look at the left panel first. Random jets mix ideally and take forever, clusters are quick and mix better with more
# memory, and the converted file has both. The price is in the right panel: the converted line starts higher, by about
# one epoch of reading, and crosses the buffer's line during the second epoch.
#
# With four workers, all reading overlaps with the steps, so the lines never cross and conversion doesn't pay by this
# clock. But your cores then decompress the same jets in every epoch, the site and the network carry them every time,
# and in a week of reading something fails. Don't convert if your disk is too small, or if your selection changes every
# day.
#
# ## Weights
#
# (Not a physicist? Skip to the exercise.) The weight of a simulated event is the number of real events that it stands
# for: cross section × luminosity × w / Σw. Here w is the generator's weight, and Σw the sum over *all generated* events
# of the process. If you sum only over the events that passed your selection, each process comes out too large. Event
# generators that calculate beyond the leading order of perturbation theory also produce negative weights, [up to 40 %
# of them](https://doi.org/10.1140/epjc/s10052-023-12243-x), which subtract what other events count twice.
#
# The sum of n equal weights has a relative error of 1/√n. For other weights, the **effective sample size** is
# (Σw)² / Σw²: the number of equal weights whose sum has the same relative error.

# %%
cu.predict(
    "14d",
    "All background weights have the same size, and a fifth of them is negative. What is the "
    "effective sample size of 100 background jets?",
    unit="jets",
)

# %%
background = weight[signal == 0].astype(float)
effective = background.sum() ** 2 / (background**2).sum()
print(f"negative: {(background < 0).mean():.0%}")
cu.reveal("14d", 100 * effective / len(background))

# %% [markdown]
# If all weights have the same size and a share f of them is negative, a share (1 − 2f)² of the sample size remains.
# Negative weights are expensive.
#
# A training uses weights in one of two places. One is the loss ΣwL / Σw, where L is the loss of one event and Σw is the
# sum over the epoch. (In a small batch, Σw can come close to zero.) The other is the sampler, which draws an event in
# proportion to its weight. But try to draw an event with a negative probability.
#
# ### Exercise 14.2 · 5 min · ●○○
#
# The loss of an epoch is ΣwL over all events that are drawn, divided by a constant. Which of these changes leave its
# expectation the same, except for a constant factor? Fill in `"same"` or `"changed"` for each letter.
#
# - **a** Multiply all weights by 1,000.
# - **b** Drop the events with negative weights.
# - **c** Replace each weight w by its absolute value.
# - **d** Draw events with probability proportional to |w|, and use only the sign of w in the loss.
# - **e** Draw events with probability proportional to |w|, and keep w in the loss.
# - **f** Draw signal events three times as often, and divide their weights by three.
# - **g** Keep a random quarter of all events, and multiply their weights by four.
# - **h** Divide the loss of each batch by the sum of the weights in this batch.
#
# <details><summary>Hint</summary>
#
# Multiply how often an event is drawn by its weight in the loss. For all events, this product must change by the same
# factor, or not at all.
#
# </details>

# %%
changes = {}
changes["a"] = "same"  ### SOLUTION
changes["b"] = "changed"  ### SOLUTION
changes["c"] = "changed"  ### SOLUTION
changes["d"] = "same"  ### SOLUTION
changes["e"] = "changed"  ### SOLUTION
changes["f"] = "same"  ### SOLUTION
changes["g"] = "same"  ### SOLUTION
changes["h"] = "changed"  ### SOLUTION

cu.check("14.2", changes)

# %% [markdown]
# Change a is the same only on paper: a constant factor multiplies SGD's learning rate, shifts what gradient clipping
# clips, competes with Adam's eps and can leave the range of float16. So scale your weights to a mean of 1 first. Change
# d is good if weights differ widely, because few draws are wasted on small weights, and f is the usual way to show a
# rare signal more often. Another common change, scaling Σw of signal to that of background, does change the
# expectation, but the ideal classifier still ranks events in the same order.
#
# ## You now can
#
# - count what one jet and one cluster cost in a ROOT file;
# - predict how well clusters mix, and write a reader that mixes them in limited memory;
# - decide when to copy or to convert;
# - tell which changes of event weights are allowed.
#
# Next: [13 Rescue a training run](13_capstone_rescue_a_training_run.ipynb), because your colleagues' scripts wait for
# data too, or another track (10, 11 or 12).

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **14a** Tempting: 4 to 16, like in other notebooks. It is more than 300: a jet costs 100 ms, and a step needs 64 of them
#   every 20 ms.
# - **14b** Tempting: 64, if you trust the random order of clusters. It is between 1 and 2.
# - **14c** Tempting: 5 or 10. It is 2, because conversion is one epoch of reading. Ask what four workers change.
# - **14d** Tempting: 60 or 80, by subtraction. It is 36.
#
# **Goes wrong.**
#
# - In 14.1, a solution fills the memory, serves only full batches, and loses the rest. Ask what `len(held) % 64` is.
# - In 14.2, h is hard. Write down two batches, one with a small sum of weights.

# %% [markdown]
# # Extra
#
# The core ends here. No later notebook needs the sections below, and each section needs only the core.
#
# ## A fixed share of signal in each batch
#
# Even a full shuffle leaves the number of signal jets in a batch to chance. Why not give each batch the same share of
# signal as the data? You don't have to repeat or drop a single event.
#
# ### Exercise 14.3 · 10 min · ●●○
#
# Write `fixed_shares`. It returns a list of batches of event indices. `signal` and `background` contain the indices of
# the two classes. Your targets:
#
# - every event is served once, and all batches have `batch_size` events, except for the last one;
# - the number of signal events in a batch differs by at most 1 from the size of the batch times the share of signal;
# - both classes are in a new random order for each `rng`.
#
# <details><summary>Hint 1</summary>
#
# After b batches, how many events were served in total, and how many of them should be signal? Round this number.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `np.split(array, ends)` cuts an array at the positions `ends`.
#
# </details>


# %%
def fixed_shares(signal, background, batch_size, rng):
    ### BEGIN SOLUTION
    total = len(signal) + len(background)
    ends = np.arange(batch_size, total, batch_size)  # events served after each batch
    of_signal = np.round(ends * len(signal) / total).astype(int)
    ours = np.split(rng.permutation(signal), of_signal)
    others = np.split(rng.permutation(background), ends - of_signal)
    return [rng.permutation(np.concatenate(pair)) for pair in zip(ours, others, strict=True)]
    ### END SOLUTION


# %%
cu.check("14.3", fixed_shares)

# %% [markdown]
# For a stream, use two `ClusterStream`s, one for each class. `take_turns` of notebook 12 decides which of them serves
# the next jet, and `proportional_order` is the course's version:

# %%
from course_utils.loading.tokens.blend import proportional_order

counts = [int(signal.sum()), int((signal == 0).sum())]
turns, _ = proportional_order(counts, sum(counts))  # 0: signal, 1: background
in_batches = (turns == 0).reshape(-1, 64).sum(axis=1)
print("signal jets in a batch:", {*in_batches.tolist()}, "and in the epoch:", in_batches.sum())

# %% [markdown]
# If a batch must have *more* signal than the data, you either repeat signal or leave out background. To keep the
# expectation, divide the weights of the signal by the same factor, as in change f of exercise 14.2. Taggers of jets are
# often sampled so that pT and mass have the same spectrum in all classes, which works in the same way.
#
# ## Weighted sampling on several ranks
#
# `DistributedSampler` accepts no weights, so it's tempting to put a `WeightedRandomSampler` on each rank. It accepts at
# most [2²⁴ weights](https://github.com/pytorch/pytorch/issues/2576), about 17 million. And it has a nastier surprise:

# %%
import torch
from torch.utils.data import WeightedRandomSampler

for seeds in ((0, 0), (0, 1)):
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    ranks = [{*WeightedRandomSampler(abs(weight), 2000, generator=g)} for g in generators]
    print(f"seeds {seeds}: {len(ranks[0] & ranks[1]):,} of {len(ranks[0]):,} jets on both ranks")

# %% [markdown]
# With the same seed, all ranks draw the same jets, so you pay for two GPUs and train on one. With different seeds, they
# draw independently, which is right on average, but now the result depends on the number of ranks. So draw *all* jets
# on all ranks with the same seed, and let each rank take its part:


# %%
def weighted_indices(weights, count, epoch, rank, world_size):
    rng = np.random.default_rng(epoch)  # the same on all ranks
    drawn = rng.choice(len(weights), count, p=np.abs(weights) / np.abs(weights).sum())
    return drawn[rank::world_size]


for world_size in (1, 2, 4):
    ranks = [weighted_indices(weight, 4000, 3, rank, world_size) for rank in range(world_size)]
    together = np.sort(np.concatenate(ranks))
    print(f"{world_size} ranks: {len(together):,} draws, sum of indices {together.sum():,}")
print(f"unique jets: {len(np.unique(together)):,} of {len(jets):,}")

# %% [markdown]
# Drawing with replacement isn't an epoch: it takes some jets more than once, and never gets to others.
#
# ## Vector reads
#
# You rarely need all columns. But the baskets of two columns usually aren't neighbors in the file, so the reader needs
# several byte ranges of a cluster. XRootD reads up to 1,024 ranges with one request, a *vector read*, <!-- given -->
# while S3 needs a request for each range. uproot merges ranges with small gaps between them, so let's read two columns
# of eight clusters at once:

# %%
from dataclasses import replace

from course_utils.hardware.storage import PRESETS

for ranges in (1, 1024):
    fs = cu.slow_storage(folder, replace(PRESETS["XRootD"], ranges=ranges))
    VirtualClock(fs)
    few = uproot.open(fs.unstrip_protocol(str(paths[0])), **fs.storage_options)["tree"]
    fs.reset_counters()
    few.arrays(["weight", "part_charge"])
    print(f"at most {ranges:5,} ranges in a request: {fs.counters().requests} requests")

# %% [markdown]
# The vector read takes two requests, because uproot keeps its first request small.
#
# ## TTree or RNTuple, `RootFiles` or uproot
#
# RNTuple, the successor of TTree, has *pages* instead of baskets. By default, the cluster of an RNTuple has [128
# MiB](https://root.cern/doc/v636/md_tree_2ntuple_2doc_2tuning.html) after compression, and that of a TTree 30 MB.
# `tree.Print("clusters")` shows the clusters of a TTree, and you change their size when you write the file, with
# `SetAutoFlush` or with `fAutoFlush` of `RSnapshotOptions`. Files that `hadd` merged fast keep their small clusters,
# and with AutoFlush 0 `RootFiles` takes a whole file as one cluster, so look at `len(jets.clusters)`.
#
# `RootFiles` reads both formats in the same way.
# [`uproot.iterate`](https://uproot.readthedocs.io/en/latest/uproot.behaviors.TBranch.iterate.html) also reads both. But
# it reads the files one after another and doesn't shuffle, so for a training you have to mix what it gives. How many
# requests does each format need?

# %%
for kind in ("ttree", "rntuple"):
    fs = cu.slow_storage(folder.parent / kind, "XRootD")
    VirtualClock(fs)
    same = RootFiles(sorted((folder.parent / kind).glob("*.root")), PARTICLES, ["weight"], fs=fs)
    fs.reset_counters()
    rows = sum(len(same.read(cluster).values) for cluster in same.clusters)
    print(f"{kind:8} {rows:,} particles, {fs.counters()}")

# %% [markdown]
# The particles are the same, the bill isn't: uproot 5.7 requests each page of an RNTuple separately, and reads the next
# cluster, too. ROOT itself merges the pages of a cluster. So if you read over a network, count the requests before you
# convert files to RNTuple.
#
# ## Your own files
#
# `RootFiles(paths, rows, fields)` reads any TTree or RNTuple. `rows` are ragged columns of one collection, such as
# `["Muon_pt", "Muon_eta"]`, and `fields` are columns with one number for each event. We tried it with files of NanoAOD
# (CMS), PHYSLITE (ATLAS) and Delphes. Paths may be `root://` addresses, for which uproot needs
# [fsspec-xrootd](https://github.com/scikit-hep/fsspec-xrootd). With several workers, each one reads its own clusters:
#
# ```python
# files = RootFiles(paths, ["Muon_pt", "Muon_eta"], ["genWeight"], tree="Events")
# loader = DataLoader(ClusterStream(files, buffer=10_000), 256, num_workers=4, collate_fn=RaggedCollate("values"))
# ```
#
# ROOT's own [RDataLoader](https://root.cern/doc/v640/release-notes.html), since ROOT 6.40, also reads whole clusters in
# random order into a buffer, and shuffles each filling of the buffer separately. It takes weights as a column and can
# sample rare classes more often. But it pads lists to `max_vec_sizes`, so batches can't be ragged. Who else helps?
# [F9Columnar](https://gitlab.cern.ch/ijs-f9-ljubljana/f9columnar) has a `DataLoader` for ROOT and for HDF5, the format
# from which ATLAS trains its taggers, [coffea](https://github.com/scikit-hep/coffea) with dask selects events and
# derives columns on many machines, and [ServiceX](https://github.com/ssl-hep/ServiceX) sends you only the columns that
# you ask for.

# %%
room.cleanup()
