import numpy as np
import pytest

from course_utils.loading.quality import Mixing, co_occurrence_matrix, mixing
from keepfed.loaders.stream import batched, blocks, buffer_shuffle, shuffled

N = 100_000
BATCH = 128


@pytest.fixture(scope="module")
def labels() -> np.ndarray:
    """Return labels sorted as on disk: mean 0, standard deviation 1."""
    drawn = np.sort(np.random.default_rng(0).normal(size=N))
    return (drawn - drawn.mean()) / drawn.std()


def shards(size: int, rng: np.random.Generator) -> list[int]:
    return [index for block in shuffled(blocks(N, size), rng) for index in block]


def measure(order: object, labels: np.ndarray) -> Mixing:
    return mixing(batched(order, BATCH), labels)  # type: ignore[arg-type]


def test_full_shuffle_is_ideal_and_sorted_data_are_worth_one_sample(labels: np.ndarray) -> None:
    shuffle = measure(shuffled(range(N), np.random.default_rng(1)), labels)
    assert shuffle.ideal == pytest.approx(1 / BATCH**0.5)
    assert shuffle.ratio == pytest.approx(1, abs=0.1)
    assert shuffle.worth == pytest.approx(BATCH, rel=0.2)
    in_order = measure(range(N), 3 * labels)
    assert in_order.std == pytest.approx(3, abs=0.03)
    assert in_order.worth == pytest.approx(1, abs=0.05)


def test_scatter_has_the_values_stated_in_the_course(labels: np.ndarray) -> None:
    for shard, buffer, std, close in (
        (N, 1_000, 0.995, 0.005),  # a buffer alone
        (1_000, 1_000, 0.628, 0.25),  # shards and a buffer
        (1_000, 10_000, 0.222, 0.25),  # a larger buffer
        (125, 1, 0.817, 0.06),  # two blocks a batch
    ):
        rng = np.random.default_rng(1)
        result = measure(buffer_shuffle(shards(shard, rng), buffer, rng), labels)
        assert result.std == pytest.approx(std, rel=close), (shard, buffer)


def test_only_full_batches_count_for_the_scatter() -> None:
    result = mixing([[0, 3], [1, 2], [3]], [0.0, 1.0, 2.0, 3.0], blocks=2)
    assert (result.std, result.worth) == (0, 2)
    result = mixing([[0, 1], [2, 3]], [0.0, 1.0, 2.0, 3.0], blocks=2, memory=1_000)
    assert str(result) == (
        "The mean of a batch scatters by 1, and by 0.791 in a full shuffle (1.3 times).\n"
        "A batch of 2 is worth 1.25 independent samples. 1,000 samples were kept in memory.\n"
        "4 samples, each exactly once."
    )
    no_epoch = str(mixing([[0, 1], [1, 2]], [0.0, 1.0, 2.0, 3.0, 4.0], blocks=2))
    assert "4 samples were served, but only 3 unique ones, and 2 never" in no_epoch
    assert "memory" not in no_epoch


def co_occurrence(order: object, size: int, n_samples: int, blocks: int) -> np.ndarray:
    batches = map(np.asarray, batched(order, size))  # type: ignore[arg-type]
    return co_occurrence_matrix(batches, n_samples, blocks=blocks)


def test_co_occurrence_is_diagonal_in_order_and_uniform_shuffled() -> None:
    in_order = co_occurrence(range(100), 10, 100, 10)
    assert not in_order[~np.eye(10, dtype=bool)].any()
    np.testing.assert_allclose(in_order.diagonal(), 11)  # 99 pairs per sample instead of 9
    mixed = co_occurrence(shuffled(range(40_000), np.random.default_rng(0)), 100, 40_000, 8)
    np.testing.assert_allclose(mixed, 1, atol=0.1)
    np.testing.assert_allclose(mixed, mixed.T)
    np.testing.assert_allclose(co_occurrence(range(10), 10, 10, 3), 1)
    assert not co_occurrence(range(10), 1, 10, 5).any()


def test_invalid_input_is_rejected() -> None:
    for batches, labels, n_blocks, message in (
        ([[0, 1]], [0, 1], 1, "two full batches"),
        ([[0], [1]], [5, 5], 1, "All labels are equal"),
        ([[0], [2]], [0, 1], 1, "index 2, but samples are numbered 0 to 1"),
        ([[0], [-1]], [0, 1], 1, "index -1, but"),
        ([[0], [1]], [0, 1], 2, "divide 2 samples into 2 blocks"),
    ):
        with pytest.raises(ValueError, match=message):
            mixing(batches, labels, blocks=n_blocks)
