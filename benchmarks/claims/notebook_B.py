"""Count the claims of appendix B."""

import os

from course_utils.exercises.nb10.hidden import shard_folder
from course_utils.loading.shards import write_shards

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # otherwise datasets may contact its hub

from datasets import config, load_dataset
from datasets.distributed import split_dataset_by_node


def seconds_asleep() -> float:
    """Return how long datasets sleeps at the end of an epoch of shuffled Parquet."""
    return float(config.SLEEP_TIME_ON_THREADS_SHUTDOWN)


def shards_read_by_one_of_three_ranks() -> list[int]:
    """Return how many of 20 and of 21 shards one rank reads with split_dataset_by_node."""
    found = []
    for count in (20, 21):
        with shard_folder() as folder:
            samples = ({"__key__": f"{n:04d}", "cls": n} for n in range(3 * count))
            paths = write_shards(samples, folder / "shards", per_shard=3)
            stream = load_dataset(
                "webdataset",
                data_files=[str(path) for path in paths],
                split="train",
                streaming=True,
                cache_dir=str(folder / "cache"),
            )
            part = split_dataset_by_node(stream, rank=0, world_size=3)
            served = list(part)
            assert len({sample["__key__"] for sample in served}) == count
            found.append(len({sample["__url__"] for sample in served}))
    return found
