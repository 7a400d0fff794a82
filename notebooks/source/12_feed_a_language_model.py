# %% [markdown]
# # 12 · Feed a language model
#
# **You will do:** turn text into numbers once, work out whether a loader can limit a training, and cut a corpus into
# windows.
#
# **You will learn**
#
# - what it costs to tokenise in the loop, and how small tokens are,
# - to tell from a few numbers whether loading can be the problem,
# - to serve each token once an epoch, which two well-known loaders do not.
#
# **You need:** notebook 02. A CPU is enough. **Minutes:** {minutes}.

# %%
import course_utils as cu

cu.ready("12")

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Script.**
#
# - *4 min* **Two bytes a token.** Prediction 12a; type a sentence of the class into the tokenizer.
# - *8 min* **Can loading be the problem?** Let somebody compute the need before anybody speaks of
#   days. Exercise 12.1, then prediction 12b: the number to remember.
# - *3 min* **Windows.** Predictions 12c and 12d, with paper on the board.
# - *10 min* **Exercise 12.2.** Homework if time is short.
#
# **Board.** A long line of tokens, with the ends of documents marked. Put windows on it as rectangles
# of paper, first at random, then side by side. Ask of how many rectangles each token is part.

# %% [markdown]
# ## Two bytes a token
#
# A language model reads **tokens**: numbers that stand for pieces of text, from a fixed vocabulary. Our data are three
# corpora that came with Python and its packages: source code, docstrings, and prose from READMEs. On some of it a
# tokenizer was trained, with 8,192 tokens.

# %%
from tokenizers import Tokenizer

from course_utils.loading.tokens import Corpus

folder = cu.data_path("tokens")
tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
corpora = {name: Corpus(folder, name) for name in ("code", "docs", "prose")}
for name, corpus in corpora.items():
    print(f"{name:5} {len(corpus):6,} documents, {len(corpus.tokens):9,} tokens")

# %%
numbers = tokenizer.encode("for batch in loader: loss = model(batch)").ids
print(numbers)
print([tokenizer.decode([number]) for number in numbers])

# %% [markdown]
# A step of our GPU takes 5 ms, for a batch of 4,096 tokens. One loop has the text in memory and tokenises it batch by batch;
# another reads tokens from a file. Neither has workers. <!-- given -->

# %%
cu.predict("12a", "How long is the GPU idle in the loop that tokenises?", unit="% of the time")

# %%
import numpy as np
import torch

BATCH, STEPS = 4096, 40
tokens = corpora["code"].tokens
pieces = [slice(first, first + BATCH) for first in range(0, STEPS * BATCH, BATCH)]
texts = [tokenizer.decode(tokens[piece], skip_special_tokens=False) for piece in pieces]


def from_text(text):
    with cu.stage("decode"):
        return torch.tensor(tokenizer.encode(text).ids)


def from_file(piece):
    with cu.stage("read"):
        return torch.from_numpy(tokens[piece].astype(np.int64))


# %%
from keepfed.measure.picture import Timeline

gpu = cu.get_accelerator(step_ms=5)


def train(batches):
    with cu.record() as trace:
        for batch in trace.batches(batches):
            gpu.step(gpu.upload(batch)).item()
    return trace


runs = {"text": train(map(from_text, texts)), "tokens": train(map(from_file, pieces))}
Timeline(runs)

# %%
cu.reveal("12a", 100 * runs["text"].summary().idle)

# %% [markdown]
# To tokenise is work for a CPU, and the same work in every epoch. Done once, it leaves two bytes for each token, since a
# vocabulary of up to 65,536 fits into uint16. The file is mapped into memory: a slice reads the pages that it needs. Only what
# goes to the model becomes int64, since its first layer takes no uint16.

# %%
from course_stories.figures import bars

places = BATCH * STEPS
kb = {"text": len("".join(texts).encode()) / 1e3, "int64": places * 8e-3, "uint16": places * 2e-3}
bars(kb, f"kB, for {places:,} tokens", "{:,.0f}".format)

# %% [markdown]
# Kept as int64, the tokens are larger than the text.
#
# ## Can loading be the problem?
#
# The notes of a lecture on training at scale plan a model of 7 billion parameters: 100 billion tokens, a batch of 1 million
# tokens, 0.5 steps/s. That takes 2.3 days. They go on: *if the dataloader caps at 500k tokens/sec: 4.6 days — doubling
# costs.* Is that so?
#
# ### Exercise 12.1 · 5 min · ●○○
#
# Fill in the four numbers. How many tokens do the GPUs take in a second, and how many MB is that from the disk? How many days does
# the training take if the loader gives 500,000 tokens/s? With which cap would the days double? <!-- given -->
#
# <details><summary>Hint</summary>
#
# The slower of the two decides: the GPUs, or the loader. A day has 86,400 seconds. <!-- given -->
#
# </details>

# %%
tokens_per_second = 1_000_000 * 0.5  ### SOLUTION
mb_per_second = 2 * 500_000 / 1e6  ### SOLUTION
days_with_500k = 100e9 / 500_000 / 86_400  ### SOLUTION
doubling_cap = 250_000  ### SOLUTION

cu.check("12.1", tokens_per_second, mb_per_second, days_with_500k, doubling_cap)

# %% [markdown]
# As a rule, training takes about 6 operations for each parameter and each token. Suppose that a GPU does 400 × 10¹² a second, as
# an H100 may. <!-- given -->

# %%
cu.predict("12b", "How much does this GPU take at 7 billion parameters?", unit="kB/s of tokens")


# %%
def tokens_a_second(parameters, operations=400e12):
    return operations / (6 * parameters)


for parameters in (10e6, 100e6, 1e9, 7e9, 70e9):
    rate = tokens_a_second(parameters)
    print(f"{parameters / 1e6:6,.0f} million: {rate:11,.0f} tokens/s, {2 * rate / 1e3:8,.0f} kB/s")

# %%
cu.reveal("12b", 2 * tokens_a_second(7e9) / 1e3)

# %% [markdown]
# No storage is too slow for that. A loader can still be: where it tokenises as it goes, where it fills batches up with empty
# tokens, and where the model is very small.
#
# ## Windows
#
# Filled up to its longest document, a batch is mostly **padding**, as the extra part counts. For pre-training documents are
# **packed** instead: laid end to end, with a token behind each that says *end*. So a corpus is one long line. A model learns to
# tell the next token, so the targets of a **window** of `length` inputs are the same tokens, moved by one: it reads `length + 1`.
#
# But which windows? [nanoGPT](https://github.com/karpathy/nanoGPT) draws each start at random.
# [BabyLlama](https://github.com/timinar/BabyLlama) cuts the line into pieces, and moves each window by a random offset of
# its own.

# %%
cu.predict(
    "12c", "As many windows as would fit begin at random. How much is in none?", unit="% of tokens"
)

# %%
cu.predict("12d", "If an offset moves each window, how much is in none?", unit="% of tokens")

# %%
from course_stories.token_windows import plot_coverage, times_served

n_tokens, length = len(tokens), 128
rng = np.random.default_rng(0)
grid = np.arange(0, n_tokens - 2 * length, length)
ways = {
    "random starts": rng.integers(n_tokens - length, size=len(grid)),
    "an offset for each": grid + rng.integers(length, size=len(grid)),
}
plot_coverage(ways, length, n_tokens)

# %%
missed = {way: np.mean(times_served(starts, length, n_tokens) == 0) for way, starts in ways.items()}
cu.reveal("12c", 100 * missed["random starts"])

# %%
cu.reveal("12d", 100 * missed["an offset for each"])

# %% [markdown]
# Random starts leave out 1/e of the tokens, as draws with replacement do. With an offset of its own a window may overlap one
# neighbour and leave a gap to the other: a sixth of the tokens is missed, and as many come twice. Over many epochs that evens out,
# over a few it does not, and no error tells you.
#
# ### Exercise 12.2 · 10 min · ●●○
#
# Write `window_starts`: where the windows of an epoch begin. Your targets:
#
# - a window at `start` reads the tokens `start` to `start + length`, both included, so a corpus that is too short has no window,
# - from the first window to the last, every token is a target exactly once; at either end fewer than `length` are left out,
# - another seed cuts at other places, any of the `length` there are, and has another order; the same seed gives the same
#   again, in every process.
#
# <details><summary>Hint 1: overlap</summary>
#
# One offset for all windows: the first one begins there, and the others follow.
#
# </details>
# <details><summary>Hint 2: the ends</summary>
#
# The targets of a window are `start + 1` to `start + length`, so the next window begins at `start + length`. The last start
# that is possible is `n_tokens - length - 1`.
#
# </details>


# %%
def window_starts(n_tokens: int, length: int, seed: int) -> np.ndarray:
    ### BEGIN SOLUTION
    rng = np.random.default_rng(seed)
    first = rng.integers(length)
    return rng.permutation(np.arange(first, n_tokens - length, length))
    ### END SOLUTION


# %%
cu.check("12.2", window_starts)

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **12a** Most say 5 to 20, since a tokenizer is quick. It is about 90. The number depends on the machine;
#   what does not is that somebody waits.
# - **12b** Most say MB. It is about 20 kB/s.
# - **12c** The tempting answer is 0, since there are as many as fit. It is 1/e, about 37.
# - **12d** Most say 0 again, or 37 again. It is a sixth. Draw two neighbours with offsets u and v:
#   the gap is v − u where that is positive, 1/6 on average.
#
# **Goes wrong.**
#
# - In 12.1 the notes are believed. Ask how many tokens the GPUs take in a second.
# - In 12.2 the one token more that a window reads is what goes wrong last. Count the targets of two
#   neighbours.

# %% [markdown]
# ## You now can
#
# - tokenise once, and keep tokens in two bytes,
# - say from parameters and operations whether loading can limit a training,
# - cut windows that serve every token once an epoch.
#
# Next: [the capstone](13_capstone_rescue_a_training_run.ipynb).

# %% [markdown]
# # Extra
#
# The core ends here. No later notebook's core needs what follows, and each section only the core.
#
# ## Blend corpora
#
# Models are trained on mixtures: much of the web, some code, a little of what is precious. Somebody chooses the share of each
# corpus, whatever its size. The obvious way is to draw the corpus of each sample at random.

# %%
cu.predict(
    "12e",
    "A corpus is drawn for 1 % of 10,000 samples. How far from 100 is its count, typically?",
    unit="samples",
)

# %%
draws = np.random.default_rng(0).random((200, 10_000)) < 0.01
cu.reveal("12e", float(np.std(draws.sum(axis=1))))

# %% [markdown]
# A tenth more or less of what is precious is no catastrophe, but it is easily avoided. Megatron takes **turns** instead of
# drawing: the next sample comes from the corpus that is farthest behind its share.
#
# ### Exercise 12.3 · 10 min · ●●○
#
# Write `take_turns`. It returns for each of `count` samples the position of its corpus in `weights`, so that
#
# - after any number of samples, no corpus is more than two samples away from its share,
# - weights may be in any unit: 2, 1 and 1 mean a half and two quarters.
#
# <details><summary>Hint 1</summary>
#
# Keep a count for each corpus. After n samples, how many should each have had?
#
# </details>
# <details><summary>Hint 2</summary>
#
# `np.argmax(share * (n + 1) - served)` is the corpus that lacks most.
#
# </details>


# %%
def take_turns(weights: list[float], count: int) -> np.ndarray:
    ### BEGIN SOLUTION
    share = np.asarray(weights) / sum(weights)
    served = np.zeros(len(share))
    turns = np.empty(count, int)
    for n in range(count):
        turns[n] = np.argmax(share * (n + 1) - served)
        served[turns[n]] += 1
    return turns
    ### END SOLUTION


# %%
cu.check("12.3", take_turns)

# %% [markdown]
# The course has a `Blend` ready, a dataset that takes turns among the windows of several corpora. Look at how often it
# serves each of them:

# %%
from course_utils.loading.tokens import Blend

weights = [0.5, 0.3, 0.2]
blend = Blend([*corpora.values()], weights, length=256, count=2 * len(tokens) // 256)
for name, windows in zip(corpora, blend.windows, strict=True):
    print(f"{name:5} {len(windows):6,} windows, {windows.epochs:5.1f} epochs")

# %%
from torch.utils.data import DataLoader

batch = next(iter(DataLoader(blend, batch_size=16)))
print("a batch:", tuple(batch.shape), batch.dtype)
print(tokenizer.decode(batch[2].tolist())[:300])

# %% [markdown]
# The smallest corpus has begun anew many times: whoever chooses a share chooses a number of epochs too. The loader must
# not shuffle, since that would undo the turns; the windows of each corpus are in a random order already. With several
# GPUs, rank r of w takes the windows r, r + w, r + 2w and so on.
#
# ## Padding
#
# A batch is a rectangle, so documents that are not packed are filled up: *per sample*, to the longest that the model takes,
# or *per batch*, to the longest of the batch, which is work for a `collate_fn`.

# %%
cu.predict(
    "12f",
    "Docstrings, cut off at 2,048 tokens, are filled up per batch of 8. What share is padding?",
    unit="%",
)

# %%
lengths = np.diff(corpora["docs"].offsets).clip(max=2048)
lengths = np.random.default_rng(0).permutation(lengths)[: len(lengths) // 8 * 8]


def padding(lengths):
    batches = lengths.reshape(-1, 8)
    return 100 * (1 - batches.sum() / (8 * batches.max(axis=1)).sum())


wasted = {
    "per sample": 100 * (1 - lengths.mean() / 2048),
    "per batch": padding(lengths),
    "per batch, sorted": padding(np.sort(lengths)),
    "packed": 0,
}
bars(wasted, "% of the batch that is padding", "{:.0f} %".format)

# %%
cu.reveal("12f", wasted["per batch"])

# %% [markdown]
# A GPU computes with padding as with anything else, and one long document is enough to fill up its whole batch. Sorting by length
# mends that, but makes batches of one kind; a compromise is to sort within a few hundred documents drawn at random. Packing
# wastes nothing. Its price is that a window begins anywhere in a document, and holds pieces of others.
#
# ## What a window holds
#
# `PackedWindows`, from which `Blend` reads, is made like
# [Megatron's](https://github.com/NVIDIA/Megatron-LM/tree/main/megatron/core/datasets) dataset. It keeps three arrays for an
# epoch: the documents in a random order, the places where they end in that order, and a random order of the windows. The
# documents themselves stay where they are. Window n depends on the seed and on n alone, so a training that stopped after n
# windows goes on with the next one.

# %%
from course_stories.token_windows import plot_mask
from course_utils.loading.tokens import END, PackedWindows

docs = PackedWindows(corpora["docs"], 256)
index = docs.index(epoch=0)
print("documents", index.documents[:6], "end at", index.ends[:6], "windows", index.windows[:6])
ends = [docs[number].numpy() == END for number in range(20)]
plot_mask(max(ends, key=np.sum))

# %% [markdown]
# The picture shows, for a window in which documents end, which tokens each token may see. On the left is the usual mask: a token
# sees everything before it, also pieces of other documents. On the right it sees its own document only. Such masks are large, so
# `torch.nn.attention.varlen` takes the places where documents begin instead.
#
# Three libraries do this work at scale. [Megatron](https://github.com/NVIDIA/Megatron-LM) keeps such arrays on the disk: one
# rank builds them, and all others load them. [BlendCorpus](https://github.com/zhenghh04/blendcorpus) offers such a loader
# to other training programs. [Energon](https://nvidia.github.io/Megatron-Energon/) also reads images and video: its `blend`
# draws at random, and its `blend_epochized` serves each corpus a fixed number of times.
#
# ## BabyLM's dataset, judged
#
# Notebook 01 asked whether BabyLlama may load everything in `__init__`. Its
# [dataset class](https://github.com/timinar/BabyLlama/blob/main/babylm_dataset.py) is short: read it, and judge the rest of
# it before you go on.
#
# | It … | Verdict |
# |---|---|
# | keeps all tokens in memory | right for 10 or 100 million words; a mapped file would do for more |
# | makes them int64, by way of a Python list | four times the memory of uint16, and more while they are made |
# | encodes file after file, as `glob` finds them | documents run into each other, and come in another order on another disk |
# | saves them under the name of the tokenizer's class and size | another tokenizer of that size, or another text, silently finds the old tokens |
# | moves each window by an offset of its own | misses a sixth, and serves a sixth twice |
# | draws that offset with `random` in the worker | right: torch seeds that, in each worker anew |

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **12e** Most say 1 or 0. It is about 10. Ask for the relative error, and what share would make
#   it 1 %.
# - **12f** Most say 10 to 30. It is about 70, since one long document fills up its whole batch.
#
# **Goes wrong.**
#
# - In 12.3 the tempting answer is to draw; the next one is a shuffled list of exact counts, which is
#   right at the end only.
#
# **Extra.** Blending and 12.3 (13 minutes), padding (2), what a window holds (2), BabyLM's dataset
# (2), which is a good debate.
