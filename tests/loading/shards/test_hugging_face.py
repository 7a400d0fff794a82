"""What notebook 10 says of Hugging Face datasets: streaming over local files, without a network."""

import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from torch.utils.data import DataLoader

from course_utils.loading.shards import write_shards
from tests.loading.stream.ranks import MORE_WORKERS_THAN_CORES

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # which datasets reads when it is imported
import datasets
from datasets.distributed import split_dataset_by_node

pytestmark = pytest.mark.full
COUNT, FILES = 100, 4
Open = Callable[[], Any]


@pytest.fixture
def numbers(tmp_path: Path) -> Open:
    """Return what opens 100 numbers in 4 files."""
    return make("json", tmp_path)


def make(name: str, folder: Path) -> Open:
    size = COUNT // FILES
    if name == "webdataset":
        samples = ({"__key__": f"{n:03d}", "json": {"number": n}} for n in range(COUNT))
        paths = write_shards(samples, folder / "shards", per_shard=size)
    else:
        paths = [folder / f"{number}.{name}" for number in range(FILES)]
        for number, path in enumerate(paths):
            rows = range(number * size, (number + 1) * size)
            if name == "parquet":
                pq.write_table(pa.table({"number": rows}), path)
            else:
                path.write_text("\n".join(json.dumps({"number": row}) for row in rows))

    return partial(load, name, paths, folder)


def load(name: str, paths: list[Path], folder: Path) -> Any:
    files, cache = list(map(str, paths)), str(folder / "cache")
    return datasets.load_dataset(
        name, data_files=files, split="train", streaming=True, cache_dir=cache
    )


def order(data: Any) -> list[int]:
    return [sample.get("json", sample)["number"] for sample in data]


@pytest.mark.parametrize("name", ["json", "parquet", "webdataset"])
def test_every_format_streams_every_sample_once(name: str, tmp_path: Path) -> None:
    data = make(name, tmp_path)()
    assert data.num_shards == FILES
    assert sorted(order(data)) == list(range(COUNT))


@pytest.mark.filterwarnings(MORE_WORKERS_THAN_CORES)
@pytest.mark.parametrize(
    ("ranks", "num_workers"), [(1, 0), (1, 1), (1, 2), (1, 5), (2, 0), (2, 2), (3, 0), (3, 2)]
)
def test_ranks_and_their_workers_together_have_every_sample_once(
    ranks: int, num_workers: int, numbers: Open
) -> None:
    """Files are split over workers; one too many is idle."""
    parts = (split_dataset_by_node(numbers(), rank=n, world_size=ranks) for n in range(ranks))
    loaders = (DataLoader(part, batch_size=None, num_workers=num_workers) for part in parts)
    assert sorted(n for loader in loaders for n in order(loader)) == list(range(COUNT))


def test_ranks_that_divide_the_files_get_files_and_others_get_every_nth_sample(
    numbers: Open,
) -> None:
    whole_files = order(split_dataset_by_node(numbers(), rank=0, world_size=2))
    every_third = order(split_dataset_by_node(numbers(), rank=0, world_size=3))
    assert {number // 25 for number in whole_files} == {0, 2}
    assert every_third == list(range(0, COUNT, 3))


def test_set_epoch_changes_the_order_and_without_it_every_epoch_is_the_same(numbers: Open) -> None:
    data = numbers().shuffle(seed=1, buffer_size=30)
    first, again = order(data), order(data)
    data.set_epoch(1)
    second = order(data)
    assert first == again != second
    assert sorted(second) == list(range(COUNT))


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_that_persist_see_the_epoch_too(persistent: bool, numbers: Open) -> None:
    data = numbers().shuffle(seed=1, buffer_size=30)
    loader = DataLoader(data, batch_size=None, num_workers=2, persistent_workers=persistent)
    first = order(loader)
    data.set_epoch(1)
    assert first != order(loader)


def interrupted(data: Any, after: int) -> tuple[list[int], dict[str, Any]]:
    stream: Iterator[Any] = iter(data)
    served = [next(stream)["number"] for _ in range(after)]
    return served, data.state_dict()


def test_an_unshuffled_stream_goes_on_exactly_where_its_state_was_taken(numbers: Open) -> None:
    served, state = interrupted(numbers(), 30)
    resumed = numbers()
    resumed.load_state_dict(state)
    assert served + order(resumed) == order(numbers())


def test_a_shuffled_stream_loses_what_its_buffer_held(numbers: Open) -> None:
    served, state = interrupted(numbers().shuffle(seed=1, buffer_size=30), 40)
    resumed = numbers().shuffle(seed=1, buffer_size=30)
    resumed.load_state_dict(state)
    rest = order(resumed)
    assert len(served) + len(rest) < COUNT
    assert len(set(served + rest)) < len(served) + len(rest) < COUNT


def test_columns_are_selected_before_the_format(numbers: Open) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'columns'"):
        numbers().with_format("torch", columns=["number"])
    sample = next(iter(numbers().select_columns(["number"]).with_format("torch")))
    assert sample["number"].tolist() == 0


def test_a_script_is_no_data_set_any_more(tmp_path: Path) -> None:
    script = tmp_path / "c4.py"
    script.write_text("import datasets")
    with pytest.raises(RuntimeError, match=r"no longer supported, but found c4\.py"):
        datasets.load_dataset(str(script), streaming=True)


def test_a_shard_with_a_flipped_bit_in_a_header_ends_early_in_silence(tmp_path: Path) -> None:
    samples = ({"__key__": f"{number}", "cls": number} for number in range(10))
    (shard,) = write_shards(samples, tmp_path / "shards", per_shard=10)
    content = bytearray(shard.read_bytes())
    content[5 * 1024 + 10] ^= 1  # a header and a block for each sample
    shard.write_bytes(content)
    data = load("webdataset", [shard], tmp_path)
    assert len(list(data)) == 5
