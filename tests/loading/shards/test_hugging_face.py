"""Claims of notebook 10 about Hugging Face datasets: local files, without a network."""

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from tests.loaders.ranks import MORE_WORKERS_THAN_CORES

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when datasets is imported

pytestmark = pytest.mark.full
COUNT, FILES = 100, 4
Open = Callable[[], Any]


@pytest.fixture
def numbers(tmp_path: Path) -> Open:
    """Return the arguments to open 100 numbers in 4 files."""
    paths = [tmp_path / f"{number}.json" for number in range(FILES)]
    for number, path in enumerate(paths):
        rows = range(25 * number, 25 * number + 25)
        path.write_text("\n".join(json.dumps({"number": row}) for row in rows))
    return partial(load, "json", paths, tmp_path)


def load(name: str, paths: list[Path], folder: Path) -> Any:
    import datasets

    files, cache = list(map(str, paths)), str(folder / "cache")
    return datasets.load_dataset(
        name, data_files=files, split="train", streaming=True, cache_dir=cache
    )


def order(data: Any) -> list[int]:
    return [sample["number"] for sample in data]


@pytest.mark.filterwarnings(MORE_WORKERS_THAN_CORES)
def test_ranks_and_workers_together_serve_every_sample_once(numbers: Open) -> None:
    """Ranks divide the files, or take every n-th sample; a worker may be idle."""
    from datasets.distributed import split_dataset_by_node

    for ranks, num_workers in ((1, 5), (2, 2), (3, 2)):
        parts = [split_dataset_by_node(numbers(), rank=n, world_size=ranks) for n in range(ranks)]
        loaders = (DataLoader(part, batch_size=None, num_workers=num_workers) for part in parts)
        assert sorted(n for loader in loaders for n in order(loader)) == list(range(COUNT))
        if ranks == 2:
            assert {number // 25 for number in order(parts[0])} == {0, 2}
        elif ranks == 3:
            assert order(parts[0]) == list(range(0, COUNT, 3))


def test_set_epoch_changes_the_order_for_persistent_workers(numbers: Open) -> None:
    data = numbers().shuffle(seed=1, buffer_size=30)
    loader = DataLoader(data, batch_size=None, num_workers=2, persistent_workers=True)
    first, again, of_workers = order(data), order(data), order(loader)
    data.set_epoch(1)
    second = order(data)
    assert first == again != second
    assert sorted(second) == list(range(COUNT))
    assert of_workers != order(loader)


@pytest.mark.parametrize("buffer", [0, 30])
def test_resumed_stream_continues_but_loses_its_buffer(buffer: int, numbers: Open) -> None:
    def stream() -> Any:
        return numbers().shuffle(seed=1, buffer_size=buffer) if buffer else numbers()

    begun, resumed = stream(), stream()
    samples = iter(begun)
    served = [next(samples)["number"] for _ in range(40)]
    resumed.load_state_dict(begun.state_dict())
    served += order(resumed)
    if buffer:
        assert len(set(served)) < len(served) < COUNT
    else:
        assert served == order(numbers())
