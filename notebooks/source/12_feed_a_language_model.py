# %% [markdown]
# # 12 · Feed a language model
#
# {here: read, transfer}
#
# **You will do:** turn text into tokens once, calculate whether a loader can limit a training, and cut a corpus into
# windows.
#
# **You will learn:**
#
# - what it costs to tokenize in the loop, and how small tokens are; <!-- 12a -->
# - to tell from a few numbers whether loading can be the problem; <!-- 12b 12.1 -->
# - to serve each token once per epoch, which two well-known loaders don't do. <!-- 12c 12d 12.2 -->
#
# **You need:** notebook 02. A CPU is enough.
#
# **Minutes:** {minutes}.

# %%
import course_utils as cu

cu.ready("12")

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Script.**
#
# - *6 min* **Two bytes per token.** Ask for prediction 12a. Type a sentence of the class into the tokenizer.
# - *12 min* **Can loading be the problem?** Let somebody calculate the need before you talk about days. Do exercise
#   12.1, then ask for prediction 12b. It's the number to remember.
# - *5 min* **Windows.** Ask for predictions 12c and 12d, with paper on the board.
# - *16 min* **Exercise 12.2.** Let people draw the end of the corpus first.
#
# **Leave out.** Exercise 12.2. Give it as homework.
#
# **Board.** Draw a long line of tokens, and mark the ends of documents. Put windows on it as rectangles of paper, first
# at random, then next to each other. How many rectangles contain each token?

# %% [markdown]
# ## Two bytes per token
#
# A language model reads **tokens**, which are numbers that stand for pieces of text, from a fixed vocabulary. Our data
# are three corpora that came to your disk with Python and its packages: source code, docstrings, and prose from
# READMEs. A tokenizer with 8,192 tokens was trained on a part of them.

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
# Let's race two loops. A step of our GPU takes 5 ms for a batch of 4,096 tokens. One loop has the text in memory and
# tokenizes each batch, the other reads tokens from a file, and neither has workers. <!-- given -->

# %%
cu.predict("12a", "How long is the GPU idle in the loop that tokenizes?", unit="% of the time")

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
# Tokenizing is CPU work, and it's the same work in every epoch, so why not do it once? Two bytes per token are enough
# then, because a vocabulary of up to 65,536 fits into uint16. Check `tokenizer.get_vocab_size()` before you trust that:
# `np.array([70_000]).astype(np.uint16)` silently becomes 4,464, and you'd train on another language. The file is mapped
# into memory, so a slice reads only the pages that it needs. Only the tokens of a batch become int64, because the first
# layer of a model doesn't accept uint16.

# %%
from course_utils.stories.figures import bars

places = BATCH * STEPS
kb = {"text": len("".join(texts).encode()) / 1e3, "int64": places * 8e-3, "uint16": places * 2e-3}
bars(kb, f"kB, for {places:,} tokens", "{:,.0f}".format)

# %% [markdown]
# As int64, the tokens are larger than the text that you wanted to compress.
#
# ## Can loading be the problem?
#
# Suppose you train a model with 7 billion parameters: 100 billion tokens, a batch of 1 million tokens, 0.5 steps/s.
# That takes 2.3 days. One lecture on training at scale warns: *if the dataloader caps at 500k tokens/sec: 4.6 days —
# doubling costs.* It sounds expensive. Is it true?
#
# ### Exercise 12.1 · 5 min · ●○○
#
# Fill in the four numbers. How many tokens do the GPUs take per second? How many MB/s is that from the disk, if the
# vocabulary has 128,256 tokens, like that of Llama 3? How many days does the training take if the loader gives 500,000
# tokens/s? And with which limit, in tokens/s, would it take three times as long? <!-- given -->
#
# <details><summary>Hint</summary>
#
# The slower of the two decides: the GPUs, or the loader. A day has 86,400 seconds. <!-- given -->
#
# </details>

# %%
tokens_per_second = 1_000_000 * 0.5  ### SOLUTION
mb_per_second = 4 * 500_000 / 1e6  ### SOLUTION
days_with_500k = 100e9 / 500_000 / 86_400  ### SOLUTION
tripling_cap = 500_000 / 3  ### SOLUTION

cu.check("12.1", tokens_per_second, mb_per_second, days_with_500k, tripling_cap)

# %% [markdown]
# The lecture's loader costs nothing, because its limit is exactly what the GPUs take. And what does *one* GPU take?
# Usually, training takes about 6 operations for each parameter and each token. Suppose that a GPU does 400 × 10¹²
# operations per second, which an H100 can reach. <!-- given -->

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
# That's little, so hardly any storage system has too little bandwidth. *Requests* can still be too slow. On the
# course's busy Lustre, one request takes 10 ms, <!-- given --> so a reader that requests one window of 1,024 tokens at
# a time gets about 100,000 tokens/s. <!-- given --> A loader can also be too slow if it tokenizes in the loop, if it
# fills batches with empty tokens, or if the model is very small.
#
# ## Windows
#
# If you fill up a batch to its longest document, most of it is **padding**, as the optional sections show. For
# pre-training, documents are **packed** instead: placed end to end, with an *end* token after each, until the corpus is
# one long line. A model learns to predict the next token, so the targets of a **window** of `length` inputs are the
# same tokens, moved by one, and the window reads `length + 1` tokens.
#
# But which windows? [nanoGPT](https://github.com/karpathy/nanoGPT) draws each start at random.
# [BabyLlama](https://github.com/timinar/BabyLlama) cuts the line into pieces, and then moves each window by a
# separate random offset. Does it matter?

# %%
cu.predict(
    "12c",
    "Windows start at random, as many as would fit. How much is in none of them?",
    unit="% of tokens",
)

# %%
cu.predict("12d", "How much is missed if each window has its own offset?", unit="% of tokens")

# %%
n_tokens, length = len(tokens), 128
rng = np.random.default_rng(0)
grid = np.arange(0, n_tokens - 2 * length, length)
ways = {
    "random starts": rng.integers(n_tokens - length, size=len(grid)),
    "an offset for each": grid + rng.integers(length, size=len(grid)),
}
served = {}  # the number of windows that contain each token
for way, starts in ways.items():
    contained = (starts[:, None] + np.arange(length)).ravel()
    served[way] = np.bincount(contained, minlength=n_tokens)

# %%
from course_utils.stories.figures import drawing

with drawing(8, 2.7, rows=2, sharex=True, sharey=True) as (figure, panels):
    for panel, (way, counts) in zip(panels, served.items(), strict=True):
        middle = counts[n_tokens // 2 :][: 16 * length]
        panel.fill_between(range(len(middle)), middle, step="post", alpha=0.7)
        panel.set(title=f"{way}: {np.mean(counts == 0):.0%} of all tokens in no window")
        panel.set(ylabel="windows", ylim=(0, 4))
    panel.set(xlabel="token, starting at the middle of the corpus")
figure

# %%
missed = {way: np.mean(counts == 0) for way, counts in served.items()}
cu.reveal("12c", 100 * missed["random starts"])

# %%
cu.reveal("12d", 100 * missed["an offset for each"])

# %% [markdown]
# Random starts leave out 1/e of the tokens, like draws with replacement. With separate offsets, two neighbors move by u
# and v. If v is larger, nobody reads the v − u tokens between them, and otherwise they overlap. On average a sixth of
# the tokens is missed, and as many come twice. Over many epochs this evens out, but you rarely have many, and no error
# tells you. You can do better in three lines.
#
# ### Exercise 12.2 · 10 min · ●●○
#
# Write `window_starts`, which returns where the windows of an epoch begin. Your targets:
#
# - a window at `start` reads the tokens `start` to `start + length`, including both. A corpus that is too short has no
#   window;
# - from the first window to the last, every token is a target exactly once. At each end fewer than `length` tokens are
#   left out;
# - another seed begins at another offset and has another order. Each offset from 0 to `length - 1` must be possible;
# - the same seed always gives the same windows, in any process, on any rank and on any day.
#
# <details><summary>Hint 1: overlap</summary>
#
# Draw one offset for all windows. The first window begins there, and the others follow.
#
# </details>
# <details><summary>Hint 2: the ends</summary>
#
# The targets of a window are `start + 1` to `start + length`, so the next window begins at `start + length`. The last
# possible start is `n_tokens - length - 1`.
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
# - **12a** Tempting: 5 to 20, because a tokenizer is fast. It is about 90. The number depends on the machine, but the GPU
#   always waits.
# - **12b** Tempting: MB. It is about 20 kB/s.
# - **12c** The tempting answer is 0, because there are as many windows as fit. It is 1/e, about 37.
# - **12d** Tempting: 0 or 37 again. It is a sixth. Draw two neighbors with offsets u and v. The gap is v − u if that is
#   positive, which is 1/6 on average.
#
# **Goes wrong.**
#
# - In 12.1, it's easy to believe the warning. How many tokens do the GPUs take per second?
# - In 12.1, 2 bytes per token are too few. What is the largest uint16?
# - In 12.2, the additional token of a window goes wrong last. Count the targets of two neighbors.

# %% [markdown]
# ## You now can
#
# - tokenize once, and store tokens in two bytes if the vocabulary allows it;
# - tell from parameters and operations whether loading can limit a training;
# - cut windows that serve every token once per epoch.
#
# Next: [13 Rescue a training run](13_capstone_rescue_a_training_run.ipynb), because you can now tell whether a loader
# is to blame, or another track (10, 11 or 14).

# %% [markdown]
# # Extra
#
# The core ends here. Each of the following sections needs only this core.
#
# ## Blend corpora
#
# Models are trained on mixtures, say mostly web pages, some code, and a little of a precious corpus. Somebody chooses
# the share of each corpus, whatever its size, and the loader has to keep to it. The obvious way is to draw the corpus
# of each sample at random, but how far off will you be?

# %%
cu.predict(
    "12e",
    "A corpus has a share of 1 % of 10,000 samples. How far is its count from 100, typically?",
    unit="samples",
)

# %%
draws = np.random.default_rng(0).random((200, 10_000)) < 0.01
cu.reveal("12e", float(np.std(draws.sum(axis=1))))

# %% [markdown]
# A tenth more or less of a precious corpus isn't a catastrophe, but you can easily avoid it. Megatron takes **turns**
# instead of drawing: the next sample comes from the corpus that is farthest behind its share.
#
# `served` says how many samples each corpus has served before, so that a training can resume. It counts in whole
# numbers, for a good reason. (A float32 stops counting at 16,777,216.)


# %%
def take_turns(weights: list[float], served: list[int], count: int) -> np.ndarray:
    """Return the position in `weights` of the corpus of each of the next `count` samples."""
    share, served = np.asarray(weights) / sum(weights), np.array(served)  # a copy
    turns = np.empty(count, int)
    for k in range(count):
        turns[k] = np.argmax(share * (served.sum() + 1) - served)
        served[turns[k]] += 1
    return turns


print("samples of each corpus:", np.bincount(take_turns([0.99, 0.01], [0, 0], 10_000)))

# %% [markdown]
# The loader must not shuffle, because that would undo the turns. You don't have to write the rest: the course has a
# finished `Blend`, a dataset that takes turns among the windows of several corpora. Let's see how often it serves each
# of them:

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
# The smallest corpus has started again many times, so choosing a share also chooses a number of epochs. The windows of
# each corpus are already in a random order, so with several GPUs, rank r of w simply takes the windows r, r + w, r + 2w
# and so on.
#
# ## Padding
#
# A batch is a rectangle, so documents that aren't packed have to be filled up. You can do this *per sample*, to the
# maximum length of the model, or *per batch*, to the longest document of the batch, in a `collate_fn`.

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
# A GPU computes with padding as with any other token, and one long document is enough to fill up its whole batch. If
# you sort by length, you avoid this, but each batch then has documents of one kind. A compromise is to sort within a
# few hundred random documents. Packing wastes nothing, but then a window begins anywhere in a document and contains
# parts of several, so who sees what?
#
# ## What a window holds
#
# `PackedWindows`, from which `Blend` reads, is made like
# [Megatron's](https://github.com/NVIDIA/Megatron-LM/tree/main/megatron/core/datasets) dataset. It keeps three arrays
# for an epoch: the documents in a random order, the places where they end in that order, and a random order of the
# windows. The documents themselves stay where they are. Window n depends only on the seed and on n, so if a training
# stops after n windows, you continue with the next one.

# %%
from course_utils.loading.tokens import END, PackedWindows

docs = PackedWindows(corpora["docs"], 256)
index = docs.index(epoch=0)
print("documents", index.documents[:6], "end at", index.ends[:6], "windows", index.windows[:6])

# %%
ends = max((docs[number].numpy() == END for number in range(20)), key=np.sum)
document = np.cumsum(ends) - ends
before = np.tri(len(ends))
within = before * (document[:, None] == document)
with drawing(7, 3.2, columns=2, sharey=True) as (figure, panels):
    panels[0].imshow(before, cmap="Blues")
    panels[0].set(title="any token before", xlabel="sees token", ylabel="token")
    panels[1].imshow(within, cmap="Blues")
    panels[1].set(title="of the same document", xlabel="sees token")
figure

# %% [markdown]
# Which tokens may each token see, if documents end inside a window? On the left is the usual mask: a token sees
# everything before it, even parts of other documents. On the right it sees only its own document. Such masks are large,
# so `torch.nn.attention.varlen` takes the places where documents begin instead.
#
# Three libraries do this work at scale:
#
# - [Megatron](https://github.com/NVIDIA/Megatron-LM) stores such arrays on disk: one rank builds them, and all others load
#   them.
# - [BlendCorpus](https://github.com/zhenghh04/blendcorpus) offers such a loader to other training programs.
# - [Energon](https://nvidia.github.io/Megatron-Energon/) also reads images and video: its `blend` draws at random, and its
#   `blend_epochized` serves each corpus a fixed number of times.
#
# ## Review BabyLM's dataset
#
# Notebook 01 asked whether BabyLlama may load everything in `__init__`. Its [dataset
# class](https://github.com/timinar/BabyLlama/blob/main/babylm_dataset.py) is short, so read it, and review the rest
# yourself before you look at our answers.
#
# | The class … | Review |
# |---|---|
# | keeps all tokens in memory | fine for 10 or 100 million words. A mapped file allows more |
# | makes them int64, from a Python list | four times the memory of uint16, and more while they are made |
# | encodes the files in the order of `glob` | documents run into each other, in another order on another disk |
# | saves them under the name of the tokenizer's class and size | another tokenizer of that size, or another text, silently finds the old tokens |
# | moves each window by a separate offset | misses a sixth, and serves a sixth twice |
# | draws that offset with `random` in the worker | right, because torch seeds `random` in each worker |

# %% [markdown] tags=["instructor"]
# *For the instructor*
#
# **Guesses.**
#
# - **12e** Tempting: 1 or 0. It is about 10. What is the relative error, and for which share would it be 1 %?
# - **12f** Tempting: 10 to 30. It is about 70, because one long document fills up its whole batch.
#
# **Extra.** Blending (3 minutes), padding (2), what a window holds (2), and BabyLM's dataset (2), which is a good
# debate.
