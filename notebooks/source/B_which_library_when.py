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
# {here: read, decode, collate}
#
# **You will do:** load the same samples on your machine with the libraries that people recommend, and check what each
# of them really serves.
#
# **You will learn:**
#
# - what a loader does for each sample, and when this cost hardly matters;
# - to read a comparison of loaders: what they serve, how often, and how well mixed;
# - which library fits which data.
#
# **You need:** notebooks 06 and 10. A CPU is enough.
#
# **Minutes:** {minutes}.

# %%
import course_utils as cu

cu.ready("B")

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Script.**
#
# - *7 min* **Every library is the fastest.** Prediction Ba, then small samples. What do the slow libraries do for each
#   sample?
# - *5 min* **Large samples.** Prediction Bb. Why is the difference much smaller now?
# - *4 min* **Check what they serve.** Find a loader that has less work because it mixes less.
# - *4 min* **Which one?** Two people describe their data, and the class goes through the list of questions.
#
# **Leave out.** The large samples. Read the recorded table instead.
#
# **Board.** Two columns, *per sample* and *per batch*. Put each task of a loader into one of them: open, parse, copy,
# stack, send. In this notebook, a task in the left column runs 256 times as often.
#
# **Guesses.**
#
# - **Ba** Tempting: 2 to 5, because all of them claim to be fast. It is hundreds of times and more.
# - **Bb** Tempting: as many as before, or 1. It is far fewer than before, and still more than 1, because copies remain.
# - **Bc** Tempting: 7, a third of 20. It is all 20.
#
# **Goes wrong.**
#
# - On a busy machine the dots scatter, and `cores` is below 1. Compare rings with rings, which we recorded.
# - Somebody wants to install a library, and there's no network. Install it before class. The rest needs no network.
#
# **Extra.** All of them in turn (2 minutes), Hugging Face datasets with Bc (1), four snippets (2), DALI and published
# benchmarks (2). If people ask about library X, install it before class and show the table.

# %% [markdown]
# ## Every library is the fastest
#
# Each library has a benchmark that it wins, because each was made for different data. So let's give all of them the
# same task: samples of 2 kB, the size of a small event, in shuffled batches of 256, from files in the page cache,
# without workers. <!-- given --> Each library writes the samples in its own format and reads them as its documentation
# shows. Each sample begins with its index, so we can count what comes back.

# %%
cu.predict(
    "Ba",
    "Small samples: how many times as many per second does the fastest load as the slowest?",
    unit="times",
)

# %%
from course_utils.stories.peers import compare

small = compare("small")
small.picture()

# %%
cu.reveal("Ba", small.spread)

# %% [markdown]
# The full dots are from your machine. The rings were recorded on a different one and include libraries that you haven't
# installed, so compare rings with rings.
#
# What do the slow ones do all the time? They run Python code *for each sample*: open a file, find the next name in a
# tar file, create an array, stack the arrays. The fast ones do all this once *for each batch*. You see it best in the
# two rows of `np.memmap`, which read the same file.
#
# That was unfair to libraries that were made for images. Now the samples become 256 times as large, half a megabyte,
# like an image or a volume. <!-- given -->

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
# The gap is much smaller, because Python code is cheap compared with such a large sample. What's left of it are copies:
# file to buffer, buffer to array, array to batch, so each byte moves three times. Now look at the upper axis. Even the
# slow libraries load hundreds of megabytes per second, <!-- given --> and a remote storage system delivers less than
# that. There, the library itself hardly matters, but it matters what it does while it waits (notebook 10).
#
# **Before you ask which library is fast, ask how large your samples are, and where they are stored.**
#
# ## Check what they serve
#
# It's easy to be fast if you serve less or mix less. Therefore `distinct` must equal `served`. (Some loaders got fewer
# samples, so that you don't have to wait.) The column `neighbors` shows how often two samples of a batch are neighbors
# on disk, compared with chance. A full shuffle has about 1, and a value of 10 means ten times as many neighbors as by
# chance, so pieces of the file stay together. The column `cores` shows how many cores were busy. Below 1, the loader
# waited, or other programs used its core.

# %%
small

# %% [markdown]
# Loaders that read in order and mix in a buffer of 1,000 are above 1, although this data set is only twice as large as
# the buffer, and with real data they mix even less. Don't trust a comparison without such a column, even if its times
# are right.
#
# ## Try the others
#
# The others aren't part of the course. Write names between the brackets, such as `try_libraries("LitData")`, and each
# library is installed in a separate environment, in the folder `.peers`, and measured there. This needs the network,
# leaves the environment of the course alone, and is gone when you delete the folder.

# %%
from course_utils.stories.peers import try_libraries

try_libraries()

# %% [markdown]
# Then run the two comparisons again. Why a separate environment for each library? Because of their dependencies: the
# largest of them asks for other versions of NumPy and of Hugging Face's packages than this course has, and would break
# it.
#
# ## Which one?
#
# First ask about the data.
#
# 1. *Are the samples small, of equal size, and on the local disk?* Map one file per field, and take a batch with one
#    `index_select` (notebook 06). In our recordings, none of these libraries is faster.
# 2. *Are they local, but large or ragged?* Write a `Dataset`, use workers, and choose a suitable format (04, 06).
# 3. *Are they on a remote storage system?* If you'll read them more than once, copy them to this machine first (07),
#    else read shards in order (10).
#
# Then ask about the training.
#
# 4. *Must a run resume exactly where it stopped?* Look for "resumes" in the table, and read notebook 11. If the number
#    of GPUs may change, look at MosaicML Streaming first.
# 5. *Is the CPU busy with decoding?* Use threads if the code releases the GIL, or decode on the GPU (08).
#
# | Library | What it is | Consider it when |
# |---|---|---|
# | [WebDataset](https://github.com/webdataset/webdataset) | tar files, read in order | samples are large and stored remotely |
# | [HF datasets](https://huggingface.co/docs/datasets) | Arrow and Parquet, by index or as a stream; resumes, but loses its shuffle buffer | you load text, tables or data from their hub |
# | [MosaicML Streaming](https://docs.mosaicml.com/projects/streaming) | its own shards (MDS), a local cache; resumes | you need the same order on any number of GPUs |
# | [LitData](https://github.com/Lightning-AI/litData) | its own chunks, or raw files; resumes | you use Lightning, or files as they are |
# | [Energon](https://github.com/NVIDIA/Megatron-Energon) | WebDataset shards with an index; blends, resumes | you train on mixtures of text and images with Megatron |
# | [LanceDB](https://docs.lancedb.com/) | a table format with random access; resumes | you also search and filter the data |
# | [grain](https://github.com/google/grain) | Python, made for JAX; resumes | every run must be reproducible |
# | [tf.data](https://www.tensorflow.org/guide/data) | a graph of operations in C++; resumes | the rest of the training is TensorFlow |
# | [torchdata](https://github.com/meta-pytorch/data) | a `DataLoader` with a state; resumes | you want to keep your `Dataset` |
# | [Ray Data](https://docs.ray.io/en/latest/data/data.html) | tasks on many nodes | preprocessing needs more CPU nodes |
# | [tensordict](https://docs.pytorch.org/tensordict) | dicts of tensors, which may be mapped | samples have many fields of one size |
# | [SPDL](https://facebookresearch.github.io/spdl) | a pipeline of threads, also in subprocesses | the code releases the GIL |
# | [DALI](https://docs.nvidia.com/deeplearning/dali/) | pipelines on CPU and GPU; resumes | the CPU cannot decode fast enough |
# | [FFCV](https://github.com/libffcv/ffcv) | its own file, compiled pipelines; last commits in June 2024 | images are on a local disk |
# | [xbatcher](https://xbatcher.readthedocs.io/) | batches from labeled arrays, for example in Zarr | you have volumes or climate data |
# | [ROOT RDataLoader](https://root.cern/doc/v640/release-notes.html) | batches from ROOT files, since ROOT 6.40 | your events are in ROOT files |
#
# "Resumes" means that the library can continue in the middle of an epoch. And since a data format is a decision for
# years, ask who'll be able to read it when nobody maintains the library anymore.
#
# ## You now can
#
# - say what a loader does for each sample, and whether your samples are so large that it hardly matters;
# - check what any loader serves, and reject a comparison that does not;
# - choose a library for your data, and try it on your machine before you convert a terabyte. <!-- given -->
#
# Next: back to [10 Stream shards with WebDataset](10_stream_shards.ipynb), or to any other track, because no notebook
# needs this one.

# %% [markdown]
# # Extra
#
# The core ends here, and each section needs only the core.
#
# ## All of them in turn
#
# `make peers` measures more and longer. Each installed loader runs in separate processes, and they take turns, so other
# programs on the machine affect all of them equally. First events, many more than above.

# %%
from course_utils.stories.peers import recorded

recorded("events")

# %% [markdown]
# The slow rows load one sample at a time. Workers don't help there, because sending small samples between processes
# costs more than reading them. A row that begins with *limit* does only one part of the work, here copying out of
# memory. A loader can beat it only if it does this part in another way, for example by mapping the file for large
# samples, or by decoding photographs at a lower resolution.
#
# Now photographs, from JPEGs to normalized batches with a random crop and a flip.

# %%
recorded("images, float")

# %% [markdown]
# Decoding a photograph takes far longer than finding it, so the container hardly matters here. The codec, the code that
# resizes, and copies do. Threads write pixels directly into the batch, but workers have to send them. And are these
# still the same pictures? The column `pixels` shows how far the images of a loader are from those of Pillow and
# torchvision, in steps of 255, for the same parts of the same photographs. Loaders with 0 do the same arithmetic, and
# the others omit antialiasing or decode at a lower resolution. A loader that may change the pixels has less work, so a
# fair comparison needs this column. `recorded("images, uint8")` shows the same without floats, and
# `recorded("photographs")` shows large images.
#
# Both tables have libraries that `make peers` doesn't measure, for example FFCV, which is compiled on your machine, and
# DALI.
#
# ## The shards of notebook 10 in Hugging Face datasets
#
# Hugging Face [`datasets`](https://huggingface.co/docs/datasets/stream) streams Parquet, JSON, and our tar files, too.
# But does each rank read only its share?

# %%
import os
import tempfile

from course_utils.loading.shards import event_samples, url_of, write_shards

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # otherwise it contacts its hub for every data set
from datasets import disable_progress_bars, load_dataset
from datasets.distributed import split_dataset_by_node

disable_progress_bars()
folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
paths = write_shards(event_samples(cu.data_path("events", "S"), seed=1), folder.name, per_shard=100)
files = [url_of(path) for path in paths]
tar_files = {"path": "webdataset", "data_files": files, "split": "train"}
stream = load_dataset(**tar_files, streaming=True, cache_dir=f"{folder.name}/hf")

# %%
cu.predict("Bc", "20 shards, three ranks: how many shards does one rank read?", unit="shards")

# %%
third = split_dataset_by_node(stream, rank=0, world_size=3)
origins = {sample["__url__"] for sample in third}
print(f"{sum(1 for _ in third)} events of rank 0, from {len(origins)} shards")
cu.reveal("Bc", len(origins))

# %% [markdown]
# All of them: if the shards do not divide evenly, each rank reads everything and keeps every third sample. Every event
# is served once, but the storage system delivers three times as much. With 21 shards, each rank would read seven, so
# choose a number that divides (exercise 10.2). Call `set_epoch` for a new order of the shards and a new shuffle in the
# buffer. And if you use Parquet, check the time between epochs: at the end of each epoch of such a stream, shuffled,
# `datasets` 5.2 sleeps for 5 seconds, so that threads of Arrow can end.
#
# ## Four snippets
#
# Some course material prints a block for `datasets` that fails three times over, and one for **tf.data** that runs, but
# reads one file at a time. Each card says what the printed code and the fixed code do. Unfold it to read both.

# %%
from course_utils.stories.snippets import compare_snippets, numbered_shards

numbered = numbered_shards(tempfile.mkdtemp(dir=folder.name))
compare_snippets(numbered, "script", "columns", "padding", "tf_data")

# %% [markdown]
# tf.data is strong because it runs its graph outside Python. There's no GIL, so reading, decoding and shuffling
# overlap, until you add code that isn't a TensorFlow operation. That runs in Python and waits for the GIL. Use tf.data
# if your training already uses TensorFlow.
#
# ## DALI
#
# Does DALI remove all decoding from the CPU? Not quite. Its decoder, nvJPEG, is a hybrid: for photographs below a
# million pixels the CPU does the first part, unless the GPU has a JPEG decoder in hardware, as the A100 has. The rest
# costs what it cost in notebook 08, time and memory of the GPU. Is that worth it? In
# [a tutorial of NERSC](https://github.com/NERSC/sc25-dl-tutorial) with logs of November 2025, on an A100, a loop
# without workers gave 9.2 samples/s, one with eight workers 12.2, DALI 13.2, and mixed precision then 54.2. Once the
# data came in time, the step was the bottleneck.
#
# ## Published benchmarks
#
# Vendors publish their own benchmarks, and one is worth a closer look. LitData streams about 6,400 raw images/s from
# S3, and 3,200 with a transform. The transform halves the throughput, so the network wasn't the limit.
