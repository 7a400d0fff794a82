# %% [markdown]
# # 14 · Feed physicists' data
#
# {here: read, decode}
#
# **You will do:** read jets from ROOT files over a network in three ways, mix signal and background, and use event weights.
#
# **You will learn:**
#
# - what it costs to read one event of a ROOT file, and a whole *cluster* of events; <!-- 14a -->
# - to predict how well clusters mix, from their number in memory; <!-- 14b 14.1 -->
# - when conversion pays; <!-- 14c -->
# - which changes of event weights are allowed. <!-- 14d 14.3 -->
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
# - *4 min* **Your files.** Ask who has ROOT files, where they are, and who knows the size of a cluster.
# - *4 min* **One event or a cluster.** Prediction 14a.
# - *18 min* **Mix clusters.** Prediction 14b, then the formula on the board, then exercise 14.1.
# - *6 min* **Convert once.** Prediction 14c, then the picture.
# - *11 min* **Weights.** Prediction 14d, then exercise 14.3 in pairs.
#
# **Leave out.** *Convert once*. Say that conversion costs one epoch of reading, and show the picture.
#
# **Board.** Draw eight files as bars, two red and six blue, and cut them into clusters. Let somebody draw lots for eight
# clusters. How many are red? This scatter is the subject of the notebook.

# %% [markdown]
# ## Your files
#
# Suppose your data are in files of [ROOT](https://root.cern), the framework of particle physics. Signal and background
# are in separate files, and each event has a weight. The files are at a computing center on another continent, and you
# read them over [XRootD](https://xrootd.org), a protocol for remote files. Each of our events is a *jet*, a narrow bundle
# of particles. It has a few numbers and a list of particles, whose length varies. The jets imitate
# [JetClass](https://doi.org/10.5281/zenodo.6619768), an open data set. The Python library uproot reads such files:

# %%
import uproot

folder = cu.data_path("collisions", "S") / "ttree"  # the small set: 8,000 jets
for path in sorted(folder.glob("*.root")):
    tree = uproot.open(path)["tree"]
    print(f"{path.name:18} {tree.num_entries:,} jets, {path.stat().st_size / 1e3:.0f} kB")
print(*tree.keys(), sep=", ")

# %% [markdown]
# A ROOT file contains a table of events, called a **TTree**. Each column of the table is cut into **baskets**. A basket
# is compressed and can only be read completely. The baskets of all columns begin and end together at certain events. The
# events in between form a **cluster**. The course's `RootFiles` reads clusters, and only the columns that you name. Here
# it reads from an emulated storage that takes 100 ms per request. <!-- given -->

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
# uproot returns *awkward arrays*, whose rows have different lengths. A model needs two ordinary arrays instead: the *flat
# values* of all particles, and the *offsets* at which the jets begin.

# %%
import awkward as ak
import numpy as np

energy = uproot.open(paths[0])["tree"]["part_energy"].array(entry_stop=4)
flat = ak.flatten(energy).to_numpy()  # without a loop over jets
offsets = np.cumsum([0, *ak.num(energy)])
print(energy.type, "->", flat.dtype, flat.shape, "offsets", offsets)

# %% [markdown]
# ## One event or a whole cluster
#
# A shuffled `DataLoader` asks for one jet after another. `ClusterStream` reads whole clusters in random order, and
# serves their jets from a shuffle buffer (notebook 05). Both read in one process. `RaggedCollate` makes a batch of flat
# values and offsets.

# %%
cu.predict(
    "14a",
    "A random epoch reads jet by jet. How many times as many requests does it send as an epoch "
    "that reads each cluster once?",
    unit="times",
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
cu.reveal("14a", alone.requests / one.requests)

# %% [markdown]
# Each jet costs a request, and the storage sends its whole cluster. So the factor is the number of jets in a
# cluster. In real files, it is often thousands.
#
# ## Mix clusters
#
# Both ways serve every jet exactly once. But signal and background are in different files, so a cluster contains only
# one of them.

# %%
cu.predict(
    "14b",
    "A batch has 64 jets from one or two clusters. Its share of signal scatters as much as the share "
    "in how many independent jets?",
    unit="jets",
)

# %%
print(one.mixing)
cu.reveal("14b", one.mixing.worth)

# %% [markdown]
# Suppose that a batch of B jets is drawn from k clusters, each of one class. Its share of signal scatters √(1 + B/k)
# times as much as in a full shuffle, because two variances add: p(1 − p)/k for the clusters, and about p(1 − p)/B for the
# jets (p: share of signal). So keep many clusters in memory. A shuffle buffer mixes even better, like twice as many
# clusters as it can hold, because it still contains jets of older clusters.

# %%
buffered = {memory: read(memory) for memory in (500, 1000, 2000)}
for memory, way in buffered.items():  # a short epoch, so a few per cent are chance
    k = 2 * memory / 125  # a cluster has 125 jets
    print(f"{memory:5} jets: scatter {way.mixing.ratio:.2f}, predicted {(1 + 64 / k) ** 0.5:.2f}")

# %% [markdown]
# ### Exercise 14.1 · 10 min · ●●○
#
# Write `mixed_batches`. It yields batches of event indices, as NumPy arrays. There are `len(sizes)` clusters, and cluster
# c has `sizes[c]` events. `read(c)` returns the indices of its events and costs one request. Your targets:
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
# ## Convert once
#
# The third way is conversion. Read everything once, and write it to your disk as flat values and offsets. `RaggedLoader`
# then draws every batch from all jets. Suppose that a step takes 20 ms. <!-- given --> Steps overlap with reading, but
# not with the conversion.

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
ways = {
    "random jets": alone,
    "cluster by cluster": one,
    "buffer of 2,000": buffered[2000],
    "converted": converted,
}
steps_s = 0.020 * len(jets) / 64  # in an epoch

# %%
from course_utils.stories.figures import drawing

with drawing(9, 3.4, columns=2) as (figure, (left, right)):
    for (name, way), mark in zip(ways.items(), "osD^", strict=True):
        size, epochs = 20 + 0.25 * way.mixing.memory, np.arange(1, 6)
        left.scatter(way.requests, way.mixing.ratio, size, marker=mark, alpha=0.7)
        total = once_s * (name == "converted") + epochs * max(way.seconds, steps_s)
        right.plot(epochs, total, f"{mark}-", label=name, markersize=4)
    left.set_xscale("symlog", linthresh=10)
    left.set(xlim=-2, ylim=0, xlabel="requests in an epoch (area: jets in memory)")
    left.set(ylabel="scatter of the signal share\n(1 = full shuffle)")
    right.set(xlabel="epochs", xticks=epochs, ylabel="seconds in total", yscale="log")
    right.legend()
figure


# %%
def break_even(workers):
    with_buffer = max(buffered[2000].seconds / workers, steps_s)  # a buffer in each
    saved_s = with_buffer - max(converted.seconds, steps_s)  # in each epoch
    return int(once_s // saved_s) + 1 if saved_s > 0 else "never"


print("with 1 worker:", break_even(1), "  with 4 workers:", break_even(4))
cu.reveal("14c", break_even(1))

# %% [markdown]
# The left panel shows that random jets mix ideally, but need thousands of requests. Clusters need few requests, and mix
# better with more memory. The converted file mixes ideally without any request. The right panel shows that conversion costs
# about one epoch of reading, so it pays from the second epoch. It never pays if enough workers overlap all reading with the
# steps, as four workers do here. It is also a bad choice if your disk is too small, or if your selection changes every day.
#
# ## Weights
#
# The weight of a simulated event is proportional to how often such events occur in real data. Event generators that
# calculate beyond the leading order of perturbation theory also produce negative weights,
# [up to 40 % of them](https://doi.org/10.1140/epjc/s10052-023-12243-x). Negative weights subtract what other events count
# twice.
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
#
# A training uses weights in one of two places: in the loss ΣwL / Σw, where L is the loss of one event, or in the sampler,
# which draws an event in proportion to its weight. A sampler cannot draw an event with a negative probability.
#
# ### Exercise 14.3 · 5 min · ●○○
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

cu.check("14.3", changes)

# %% [markdown]
# Change d is a good choice if weights differ widely, because few draws are wasted on small weights. Change f is the usual
# way to show a rare signal more often.
#
# ## You now can
#
# - count what one event and one cluster cost in a ROOT file;
# - predict how well clusters mix, and write a reader that mixes them in limited memory;
# - decide when to convert;
# - tell which changes of event weights are allowed.

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **14a** Tempting: 10 to 1,000. It is the number of jets in a cluster, 125.
# - **14b** People who trust random order say 64. It is between 1 and 2.
# - **14c** Tempting: 5 or 10. It is 2, because conversion is one epoch of reading. Ask what four workers change.
# - **14d** People who subtract say 60 or 80. It is 36.
#
# **Goes wrong.**
#
# - In 14.1, some learners fill the memory, serve only full batches, and lose the rest. Ask what `len(held) % 64` is.
# - In 14.3, h is hard. Let learners write down two batches, one with a small sum of weights.

# %% [markdown]
# # Extra
#
# The core ends here. No later notebook needs the sections below, and each section needs only the core.
#
# ## A fixed share of signal in each batch
#
# Even a full shuffle leaves the number of signal jets in a batch to chance. You can also give each batch the same share
# of signal as the data. Then no event is repeated or dropped.
#
# ### Exercise 14.2 · 10 min · ●●○
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
cu.check("14.2", fixed_shares)

# %% [markdown]
# For a stream, use two `ClusterStream`s, one for each class. `take_turns` of notebook 12 decides which of them serves the
# next jet, and `proportional_order` is the course's version:

# %%
from course_utils.loading.tokens.blend import proportional_order

counts = [int(signal.sum()), int((signal == 0).sum())]
turns, _ = proportional_order(counts, sum(counts))  # 0: signal, 1: background
in_batches = (turns == 0).reshape(-1, 64).sum(axis=1)
print("signal jets in a batch:", {*in_batches.tolist()}, "and in the epoch:", in_batches.sum())

# %% [markdown]
# If a batch must have *more* signal than the data, either signal is repeated or background is left out. To keep the
# expectation, divide the weights of the signal by the same factor, as in change f of exercise 14.3.
#
# ## Weighted sampling on several ranks
#
# `DistributedSampler` accepts no weights, so many scripts use a `WeightedRandomSampler` on each rank. It accepts at most
# [2²⁴ weights](https://github.com/pytorch/pytorch/issues/2576), about 17 million.

# %%
import torch
from torch.utils.data import WeightedRandomSampler

for seeds in ((0, 0), (0, 1)):
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    ranks = [{*WeightedRandomSampler(abs(weight), 2000, generator=g)} for g in generators]
    print(f"seeds {seeds}: {len(ranks[0] & ranks[1]):,} of {len(ranks[0]):,} jets on both ranks")

# %% [markdown]
# With the same seed, all ranks draw the same jets. With different seeds, they draw independently. This is right on
# average, but the result depends on the number of ranks. Draw *all* jets on all ranks with the same seed, and let each
# rank take its part:


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
# Drawing with replacement is not an epoch: some jets were drawn more than once, and other jets were never drawn.
#
# ## Vector reads
#
# You rarely need all columns. The baskets of two columns are usually not next to each other in the file, so the reader
# needs several byte ranges of a cluster. XRootD reads up to 1,024 ranges with one request, a *vector read*. <!-- given -->
# S3 needs a request for each range. uproot merges ranges with small gaps between them, so we read two columns of eight
# clusters at once:

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
# RNTuple, the successor of TTree, has *pages* instead of baskets. By default, the cluster of an RNTuple has
# [128 MiB](https://root.cern/doc/v636/md_tree_2ntuple_2doc_2tuning.html). `RootFiles` reads both formats in the same way.
# [`uproot.iterate`](https://uproot.readthedocs.io/en/latest/uproot.behaviors.TBranch.iterate.html) also reads both. But it
# reads the files one after another and does not shuffle, so it suits an analysis, but not a training. How many requests
# does each format need?

# %%
for kind in ("ttree", "rntuple"):
    fs = cu.slow_storage(folder.parent / kind, "XRootD")
    VirtualClock(fs)
    same = RootFiles(sorted((folder.parent / kind).glob("*.root")), PARTICLES, ["weight"], fs=fs)
    fs.reset_counters()
    rows = sum(len(same.read(cluster).values) for cluster in same.clusters)
    print(f"{kind:8} {rows:,} particles, {fs.counters()}")

# %% [markdown]
# The particles are the same. But uproot 5.7 requests each page of an RNTuple separately, and reads the next cluster, too.
# ROOT itself merges the pages of a cluster. If you read over a network, count the requests before you convert files to
# RNTuple.
#
# ## Your own files
#
# `RootFiles(paths, rows, fields)` reads any TTree or RNTuple. `rows` are ragged columns of one collection, such as
# `["Muon_pt", "Muon_eta"]`, and `fields` are columns with one number for each event. We tried it with files of NanoAOD
# (CMS), PHYSLITE (ATLAS) and Delphes. Paths may be `root://` addresses, for which uproot needs
# [fsspec-xrootd](https://github.com/scikit-hep/fsspec-xrootd). With several workers, each worker reads its own clusters:
#
# ```python
# files = RootFiles(paths, ["Muon_pt", "Muon_eta"], ["genWeight"], tree="Events")
# loader = DataLoader(ClusterStream(files, buffer=10_000), 256, num_workers=4, collate_fn=RaggedCollate("values"))
# ```
#
# [F9Columnar](https://gitlab.cern.ch/ijs-f9-ljubljana/f9columnar) offers a `DataLoader` for ROOT and HDF5 that selects
# events, too. ROOT's own [RDataLoader](https://github.com/root-project/root/pull/21888) also reads whole clusters in
# random order into a buffer. But it shuffles each filling of the buffer separately.

# %%
room.cleanup()
