# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # B · Choose a library for your data
#
# **You will do:** let the libraries that people recommend load the same samples on your machine, and keep the books.
#
# **You will learn**
#
# - what a loader pays for each sample, and when that hardly matters,
# - to read a comparison of loaders: what was served, how often, and how well mixed,
# - which library fits which data.
#
# **You need:** notebooks 06 and 10. A CPU is enough. **Minutes:** {minutes}.

# %%
import course_utils as cu

cu.ready("B")

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Script.**
#
# - *4 min* **Everybody is the fastest.** Prediction Ba, then small samples. Ask what the slow ones do
#   for each sample.
# - *3 min* **Large samples.** Prediction Bb. Ask where the difference has gone.
# - *2 min* **Look into the books.** Find a loader that has less to do because it mixes less.
# - *2 min* **Which one?** Let two people ask about their own data, and go down the list of questions
#   together.
#
# **Board.** Two columns, *per sample* and *per batch*. Put what a loader does into one of them: open,
# parse, copy, stack, send. A line in the left column costs 256 times what one in the right does.
#
# **Guesses.**
#
# - **Ba** Most say 2 to 5, since all of them claim to be fast. It is hundreds of times and more.
# - **Bb** Most say as many as before, or 1. It is far fewer than before, and still more than 1:
#   what is left are copies.
# - **Bc** 7, a third of 20. It is all 20.
#
# **Goes wrong.**
#
# - On a busy machine the dots scatter, and `cores` is below 1. Compare rings with rings: they were
#   recorded.
# - Somebody wants to install a library, and there is no network. Install it before class with the
#   form; nothing else here needs the network.
#
# **Extra.** All of them in turn (2 minutes), Hugging Face datasets with Bc (1), snippets of lecture
# notes (2), DALI and published benchmarks (2). For those who ask "and what about X?": install X
# before class, and show the table.

# %% [markdown]
# ## Everybody is the fastest
#
# Each library has a benchmark that it wins, because each was made for other data. Here all of them get the same task:
# samples of 2 kB, as large as a small event, in shuffled batches of 256, from files that the system keeps in memory, without workers. <!-- given -->
# Each writes the samples in its own format and reads them as its documentation shows. A sample begins with its
# number, so that we can count what comes back.

# %%
cu.predict(
    "Ba",
    "Small samples: how many times as many per second does the fastest load as the slowest?",
    unit="times",
)

# %%
from course_stories.peers import compare

small = compare("small")
small.picture()

# %%
cu.reveal("Ba", small.spread)

# %% [markdown]
# The full dots were measured on your machine just now. The rings were recorded on another one, also for libraries that are not installed
# here: compare rings with rings.
#
# What makes the difference is not cleverness. The slow ones do something in Python *for each sample*: they open a file, look for
# the next name in a tar file, make an array, and stack the arrays. The fast ones do all that once *for each batch*. Compare
# the two lines of `np.memmap`: they read the same file.
#
# Now the samples become 256 times as large, half a megabyte, as an image or a volume is. <!-- given -->

# %%
cu.predict(
    "Bb",
    "Samples of half a megabyte: how many times as many does the fastest load as the slowest?",
    unit="times",
)

# %%
large = compare("large")
large.picture()

# %%
cu.reveal("Bb", large.spread)

# %% [markdown]
# The gap is much smaller, for a large sample is worth many lines of Python. What is left of it are copies: who reads a file into
# a buffer, the buffer into an array, and that into a batch, moves each byte three times. And look at the upper axis. Even the
# slow ones now give hundreds of megabytes per second, <!-- given -->
# and a storage far away gives less. There the library hardly counts, and what it does while it waits counts a lot
# (notebook 10). That is what libraries that stream were made for.
#
# **So before you ask which library is fast, say how large your samples are, and where they lie.**
#
# ## Look into the books
#
# A loader that serves less, or mixes less, has less to do. So `distinct` must be `served`. (Some were given fewer samples, so that you
# need not wait for them.) `neighbours` says how often two samples
# of a batch lay side by side on the disk, compared with chance. A full shuffle has about 1, and more means that runs
# of the file stay together. `cores` says how many cores were busy: below 1, the loader waited for something, or other programs took its core.

# %%
small

# %% [markdown]
# Those that read in order and mix in a buffer of 1,000 are above 1, although our set is only twice as large as the buffer; with a
# real one they are farther from it. Others mix within chunks. So a comparison that has no such column is
# not fair, however carefully it was timed.
#
# ## Try the others
#
# These libraries are not part of the course. Choose some and press the button: each is installed into an
# environment of its own, in the folder `.peers` of this project, and is measured there. That needs the network. Until you press
# the button nothing is installed, and the environment of the course never changes; remove the folder to be rid of it all.

# %%
from course_stories.peers import LibraryForm

LibraryForm()

# %% [markdown]
# Then run the two comparisons again. Why an environment for each? Because of what they bring along: the largest of them asks for other versions of NumPy
# and of Hugging Face's packages than this course has, and would break it. What a library needs is part of its price.
#
# ## Which one?
#
# Ask about the data first.
#
# 1. *Are the samples small, of one size, and on the local disk?* Then map a file for each field, and take a batch with one `index_select`
#    (notebook 06). No library here is faster.
# 2. *Are they local, but large or ragged?* Then write a `Dataset`, use workers, and choose a format that fits (04, 06).
# 3. *Do they lie far away?* Then read shards in order (10), or copy them to this machine first (07).
#
# And then about the training.
#
# 4. *Must a run go on exactly where it broke off, on another number of GPUs too?* Then look for "resumes" in the table, and at notebook 11.
# 5. *Does the CPU decode all day?* Then use threads where the code releases the GIL, or decode on the GPU (08).
#
# | Library | What it is | Look at it when |
# |---|---|---|
# | [WebDataset](https://github.com/webdataset/webdataset) | tar files, read in order | samples are large, and lie far away |
# | [HF datasets](https://huggingface.co/docs/datasets) | Arrow and Parquet, by index or as a stream; resumes | text, tables, what is on their hub |
# | [MosaicML Streaming](https://docs.mosaicml.com/projects/streaming) | shards of its own (MDS), a local cache; resumes | you need the same order on any number of GPUs |
# | [LitData](https://github.com/Lightning-AI/litData) | chunks of its own, or raw files; resumes | you work with Lightning, or on files as they are |
# | [Energon](https://github.com/NVIDIA/Megatron-Energon) | WebDataset shards with an index; blends, resumes | you train on mixtures of text and images with Megatron |
# | [LanceDB](https://docs.lancedb.com/) | a table format with random access; resumes | you also search and filter the data |
# | [grain](https://github.com/google/grain) | Python, made for JAX; resumes | every run must be reproducible |
# | [tf.data](https://www.tensorflow.org/guide/data) | a graph of operations in C++ | the rest of the training is TensorFlow |
# | [tensordict](https://docs.pytorch.org/tensordict) | dicts of tensors, mapped too | samples have many fields of one size |
# | [SPDL](https://facebookresearch.github.io/spdl) | a pipeline of threads, in subprocesses too | the code releases the GIL |
# | [DALI](https://docs.nvidia.com/deeplearning/dali/) | pipelines on CPU and GPU | the CPU cannot decode fast enough |
# | [FFCV](https://github.com/libffcv/ffcv) | one file of its own, compiled pipelines; last commit in May 2024 | images on a local disk |
# | [ROOT RDataLoader](https://root.cern/) | batches from ROOT files | your events are in ROOT files |
#
# "Resumes" means that it can go on in the middle of an epoch. And a format is a promise for years: ask who will read it
# when the library is no longer kept.
#
# ## You now can
#
# - say what a loader pays for each sample, and whether your samples are large enough not to care,
# - keep the books of any loader, and refuse a comparison without them,
# - choose a library by your data, and try it on your machine before you convert a terabyte. <!-- given -->

# %% [markdown]
# # Extra
#
# The core ends here, and each section needs only the core.
#
# ## All of them in turn
#
# `make peers` measures for longer, and more: every loader that is installed has processes of its own, and all take turns, so that
# what else the machine does meets all of them alike. First events, many times as many as above.

# %%
from course_stories.peers import recorded

recorded("events")

# %% [markdown]
# The slow rows are those that take one sample after the other. Workers do not help there, because small samples cost more to send from
# one process to another than to read. The rows that begin with *limit* copy out of memory: no loader that gives such batches can be faster.
# Then photographs, from JPEGs to normalised batches with a random crop and a flip.

# %%
recorded("images, float")

# %% [markdown]
# To decode a photograph takes far longer than to find it. So the container hardly counts here, and what does is the codec, the code that resizes, and
# copies: threads put pixels where the batch will be, and workers have to send them. `pixels` says how far the images of a loader
# are from those of Pillow and torchvision, in steps of 255, for the same parts of the same photographs. Those at 0 do the same
# arithmetic, and the others leave out antialiasing, or decode more coarsely. A loader that may change the pixels has less to do: so
# that column belongs to the books. `recorded("images, uint8")` has the same without floats, and `recorded("photographs")` large images.
#
# Two are harder to have than the others. FFCV is compiled on your machine and needs the headers of OpenCV and libturbojpeg;
# MosaicML Streaming wants an older NumPy.
#
# ## The shards of notebook 10 in Hugging Face datasets
#
# Hugging Face [`datasets`](https://huggingface.co/docs/datasets/stream) streams Parquet and JSON, and our tar files too.

# %%
import os
import tempfile

from course_utils.loading.shards import event_samples, url_of, write_shards

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # else it asks its hub about every data set
from datasets import disable_progress_bars, load_dataset
from datasets.distributed import split_dataset_by_node

disable_progress_bars()
room = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
paths = write_shards(event_samples(cu.data_path("events", "S"), seed=1), room.name, per_shard=100)
files = [url_of(path) for path in paths]
tar_files = {"path": "webdataset", "data_files": files, "split": "train"}
stream = load_dataset(**tar_files, streaming=True, cache_dir=f"{room.name}/hf")

# %%
cu.predict("Bc", "20 shards, three ranks: how many shards does one rank read?", unit="shards")

# %%
third = split_dataset_by_node(stream, rank=0, world_size=3)
origins = {sample["__url__"] for sample in third}
print(f"{sum(1 for _ in third)} events of rank 0, from {len(origins)} shards")
cu.reveal("Bc", len(origins))

# %% [markdown]
# All of them: if the shards do not divide evenly, each rank reads everything and keeps every third sample. Every event is
# served once, but the storage is asked for three times as much. With 21 shards it would be seven for each rank. Call `set_epoch`
# for a new order of the shards and in the shuffle buffer. And look at the clock with files of Parquet: at the end of each epoch of such a
# stream, shuffled, `datasets` 5.2 sleeps for 5 seconds, so that threads of Arrow may end.
#
# ## Four snippets of lecture notes
#
# Lecture notes print a block for `datasets` that fails three times over, and one for **tf.data** that
# runs, and reads one file after the other. Each card says what the printed code does and what the mended code does; unfold it to read both.

# %%
from course_stories.snippets import compare_snippets, numbered_shards

numbered = numbered_shards(tempfile.mkdtemp(dir=room.name))
compare_snippets(numbered, "script", "columns", "padding", "tf_data")

# %% [markdown]
# tf.data runs its graph outside Python, which is its strength: no GIL, and reading, decoding and shuffling overlap. What is
# not an operation of TensorFlow goes back into Python, and waits for the GIL. Take it if your training is TensorFlow already.
#
# ## DALI
#
# DALI is often said to take the work off the CPU entirely. Its decoder, nvJPEG, is a hybrid: for photographs below a million
# pixels the CPU does the first part, unless the GPU has a JPEG decoder in hardware, as the A100 has. The rest costs what
# notebook 08 measures: time and memory of the GPU. In [a tutorial of NERSC](https://github.com/NERSC/sc25-dl-tutorial)
# on an A100, a loop without workers gave 8.8 samples/s, one with four workers 12.5, DALI 13.2, and mixed precision then 53.8.
# Once the data came in time, what was left was the step.
#
# ## Benchmarks that others publish
#
# Vendors publish benchmarks of their own, and one is worth reading twice: LitData streams about 6,400 raw images/s from S3, and 3,200 with
# a transform. The transform halves it, so the network was not the limit.
