"""More snippets of lecture notes: workers, writers, handlers, and other libraries."""

from __future__ import annotations

from notebooks.stories.snippets.pipelines import Snippet

_TOKENIZER = """\
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import DataCollatorWithPadding, PreTrainedTokenizerFast

words = Tokenizer(models.WordLevel({"one": 0, "two": 1, "<end>": 2}, unk_token="<end>"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<end>")  # as GPT-2's
"""
_RECORDS = """\
import tensorflow as tf

files = [str(folder / f"{number}.tfrecord") for number in range(6)]
for first, file in zip(range(0, count, 8), files):
    with tf.io.TFRecordWriter(file) as writer:
        for number in range(first, first + 8):
            writer.write(str(number))
parsed = []


def parse(record):
    return tf.numpy_function(lambda text: parsed.append(text) or int(text), [record], tf.int64)


"""
_COUNTED = """\
batches = iter(data)
first = next(batches)
print("parsed before the first batch came:", len(parsed))
served = [int(number) for batch in (first, *batches) for number in batch]
"""

OTHERS = (
    Snippet(
        name="cache",
        source="note 003",
        broken="""\
import webdataset as wds

data = wds.WebDataset(urls, shardshuffle=False, cache_dir=str(folder / "cache"))
served = [int(sample["cls"]) for sample in data]
""",
        error=r"ValueError: cache directory .* does not exist",
        mended="""\
import webdataset as wds

(folder / "cache").mkdir()
data = wds.WebDataset(
    urls, shardshuffle=False, cache_dir=str(folder / "cache"), cache_size=10**10
)
served = [int(sample["cls"]) for sample in data]
""",
        why="The folder must be there. And without cache_size nothing is ever removed from it.",
    ),
    Snippet(
        name="workers",
        source="notes 003 and 004",
        broken="""\
import webdataset as wds
from torch.utils.data import DataLoader

data = wds.WebDataset(urls[:1], shardshuffle=False)
served = [int(sample["cls"]) for sample in DataLoader(data, batch_size=None, num_workers=2)]
""",
        error=r"ValueError: No samples found in dataset; perhaps you have fewer shards",
        mended="""\
import webdataset as wds
from torch.utils.data import DataLoader

data = wds.WebDataset(urls, shardshuffle=False)
served = [int(sample["cls"]) for sample in DataLoader(data, batch_size=None, num_workers=2)]
""",
        why="A worker reads whole shards, so one shard is work for one. empty_check=False silences "
        "the error, and leaves the other idle; more shards give it work.",
    ),
    Snippet(
        name="writer",
        source="note 004",
        broken="""\
import webdataset as wds

with open(folder / "shard-000000.tar", "wb") as file, wds.TarWriter(file) as sink:
    for sample in wds.WebDataset(urls, shardshuffle=False):
        sink.write(sample)
shards = sorted(folder.glob("*.tar"))
print(f"{count} samples in {len(shards)} shard: work for one worker")
""",
        error=r"48 samples in 1 shard",
        mended="""\
import webdataset as wds

from course_utils.loading.shards import stream_shards, write_shards

samples = wds.WebDataset(urls, shardshuffle=False)
shards = write_shards(samples, folder / "shards", per_shard=8)
print(f"{count} samples in {len(shards)} shards")
served = [int(sample["cls"]) for sample in stream_shards(shards)]
""",
        why="TarWriter writes one file, whatever its name. write_shards, or webdataset's "
        "ShardWriter, begins a new one after so many samples.",
    ),
    Snippet(
        name="handler",
        source="often advised",
        broken="""\
import fsspec
import webdataset as wds

from course_utils.loading.shards import url_of

with fsspec.open(urls[0]) as file:
    content = file.read()
cut = folder / "cut.tar"
cut.write_bytes(content[: len(content) // 2])  # as a broken connection leaves it
data = wds.WebDataset(
    [url_of(cut), *urls[1:]], shardshuffle=False, handler=wds.warn_and_continue
)
served = [int(sample["cls"]) for sample in data]
""",
        error=r"unexpected end of data(?s:.*)4\d served, 4\d distinct, of 48",
        mended="""\
import fsspec

from course_utils.loading.shards import stream_shards

with fsspec.open(urls[0]) as file:
    content = file.read()
cut = folder / "cut.tar"
cut.write_bytes(content[: len(content) // 2])
try:
    list(stream_shards([cut, *urls[1:]]))
except OSError as error:
    print(error)
served = [int(sample["cls"]) for sample in stream_shards(urls)]
""",
        why="The handler drops what is left of a broken shard, and the epoch is shorter. A broken "
        "shard should stop the run, or be read again from where it broke.",
    ),
    Snippet(
        name="script",
        source="note 004",
        broken="""\
from datasets import load_dataset

script = folder / "c4.py"  # "c4" was such a script
script.write_text("import datasets")
data = load_dataset(str(script), split="train", streaming=True)
""",
        error=r"RuntimeError: Dataset scripts are no longer supported, but found c4.py",
        mended="""\
from datasets import load_dataset

data = load_dataset("webdataset", data_files=urls, split="train", streaming=True)
served = [int(sample["cls"]) for sample in data]
""",
        why="Since version 4 datasets runs no scripts. It reads files by their format: webdataset, "
        "parquet, json; on its hub, 'allenai/c4' is such files.",
    ),
    Snippet(
        name="columns",
        source="note 004",
        broken="""\
from datasets import load_dataset

data = load_dataset("webdataset", data_files=urls, split="train", streaming=True)
data = data.with_format("torch", columns=["cls"])
""",
        error=r"TypeError: .*with_format\(\) got an unexpected keyword argument 'columns'",
        mended="""\
from datasets import load_dataset

data = load_dataset("webdataset", data_files=urls, split="train", streaming=True)
data = data.select_columns(["cls"]).with_format("torch")
served = [int(sample["cls"]) for sample in data]
""",
        why="A streamed data set is no table: select_columns drops the others, here before anybody "
        "decodes them.",
    ),
    Snippet(
        name="padding",
        source="note 004",
        broken=_TOKENIZER
        + """\
collate = DataCollatorWithPadding(tokenizer, return_tensors="np")
print(collate([tokenizer("one"), tokenizer("one two")])["input_ids"].shape)
""",
        error=r"ValueError: Asking to pad but the tokenizer does not have a padding token",
        mended=_TOKENIZER
        + """\
tokenizer.pad_token = tokenizer.eos_token
collate = DataCollatorWithPadding(tokenizer, return_tensors="np")
print(collate([tokenizer("one"), tokenizer("one two")])["input_ids"].shape)
""",
        why="GPT-2 never saw padding, so its tokenizer has no token for it; any will do, because "
        "the attention mask leaves it out.",
        needs="transformers",
    ),
    Snippet(
        name="tf_data",
        source="note 004",
        broken=_RECORDS
        + """\
data = tf.data.TFRecordDataset(files).map(parse).shuffle(10000).batch(16)
"""
        + _COUNTED,
        error=r"first batch came: 48",
        mended=_RECORDS
        + """\
data = tf.data.Dataset.from_tensor_slices(files).shuffle(len(files))
data = data.interleave(tf.data.TFRecordDataset, num_parallel_calls=tf.data.AUTOTUNE)
data = data.shuffle(10000).map(parse).batch(16)
"""
        + _COUNTED,
        why="It reads one file after the other, and its buffer holds what was parsed. interleave "
        "reads several at once; and what is shuffled before it is parsed is small.",
        needs="tensorflow",
    ),
)
