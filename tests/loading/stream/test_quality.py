"""How good a shuffle is, in figures and in a picture."""

import numpy as np
import pytest

from course_utils.loading.stream import batched, blocks, buffer_shuffle, draw_together, shuffled
from course_utils.loading.stream.quality import BRIGHTEST, Mixing, mixing, who_sits_with_whom

N = 100_000
BATCH = 128


@pytest.fixture(scope="module")
def labels() -> np.ndarray:
    """Return a label as it lies on disk after sorting: mean 0, standard deviation 1."""
    drawn = np.sort(np.random.default_rng(0).normal(size=N))
    return (drawn - drawn.mean()) / drawn.std()


def shards(size: int, rng: np.random.Generator) -> list[int]:
    return [index for block in shuffled(blocks(N, size), rng) for index in block]


def measure(order: object, labels: np.ndarray) -> Mixing:
    return mixing(batched(order, BATCH), labels)  # type: ignore[arg-type]


def test_a_full_shuffle_is_ideal(labels: np.ndarray) -> None:
    result = measure(shuffled(range(N), np.random.default_rng(1)), labels)
    assert result.ideal == pytest.approx(1 / BATCH**0.5)
    assert result.ratio == pytest.approx(1, abs=0.1)
    assert result.worth == pytest.approx(BATCH, rel=0.2)
    assert result.complete


def test_sorted_data_are_worth_one_sample_a_batch(labels: np.ndarray) -> None:
    result = measure(range(N), 3 * labels)
    assert result.ideal == pytest.approx(3 / BATCH**0.5)
    assert result.std == pytest.approx(3, abs=0.03)
    assert result.worth == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(
    ("shard", "buffer", "std"),
    [(N, 1_000, 0.995), (1_000, 1_000, 0.628), (1_000, 10_000, 0.222), (125, 1, 0.817)],
    ids=["a buffer alone", "shards and a buffer", "a larger buffer", "two blocks a batch"],
)
def test_it_scatters_as_the_course_says(
    shard: int, buffer: int, std: float, labels: np.ndarray
) -> None:
    rng = np.random.default_rng(1)
    result = measure(buffer_shuffle(shards(shard, rng), buffer, rng), labels)
    close = {N: 0.005, 125: 0.06}.get(shard, 0.25)
    assert result.std == pytest.approx(std, rel=close)
    assert result.complete


def test_only_full_batches_count_for_the_scatter() -> None:
    result = mixing([[0, 3], [1, 2], [3]], [0.0, 1.0, 2.0, 3.0], blocks=2)
    assert (result.std, result.worth) == (0, 2)


def test_the_ledger_tells_what_came_twice_and_what_never() -> None:
    result = mixing([[0, 1], [1, 2]], [0.0, 1.0, 2.0, 3.0, 4.0], blocks=2)
    assert (result.samples, result.distinct, result.missing) == (4, 3, 2)
    assert not result.complete
    assert "4 samples came, only 3 of them distinct, and 2 never" in str(result)


def test_the_sentence_names_the_figures() -> None:
    result = mixing([[0, 1], [2, 3]], [0.0, 1.0, 2.0, 3.0], blocks=2, memory=1_000)
    assert str(result) == (
        "The mean of a batch scatters by 1; in a full shuffle by 0.791 (1.3 times).\n"
        "A batch of 2 is worth 1.25 independent samples. 1,000 samples were held in memory.\n"
        "4 samples, each exactly once."
    )
    assert "memory" not in str(mixing([[0, 1], [2, 3]], range(4), blocks=2))


def test_neighbours_sit_with_neighbours_only() -> None:
    together = who_sits_with_whom(batched(range(100), 10), 100, blocks=10)
    assert not together[~np.eye(10, dtype=bool)].any()
    np.testing.assert_allclose(together.diagonal(), 11)  # 99 pairs a sample instead of 9


def test_everybody_sits_with_everybody_after_a_full_shuffle() -> None:
    order = shuffled(range(40_000), np.random.default_rng(0))
    together = who_sits_with_whom(batched(order, 100), 40_000, blocks=8)
    np.testing.assert_allclose(together, 1, atol=0.1)
    np.testing.assert_allclose(together, together.T)
    np.testing.assert_allclose(who_sits_with_whom([range(10)], 10, blocks=3), 1)
    assert not who_sits_with_whom(batched(range(10), 1), 10, blocks=5).any()


@pytest.mark.parametrize(
    ("batches", "labels", "n_blocks", "message"),
    [
        ([[0, 1]], [0, 1], 1, "two full batches"),
        ([], [0, 1], 1, "two full batches"),
        ([[0], [1]], [5, 5], 1, "All labels are the same"),
        ([[0], [2]], [0, 1], 1, "index 2, but the samples are 0 to 1"),
        ([[0], [-1]], [0, 1], 1, "index -1, but"),
        ([[0], [1]], [0, 1], 2, "2 samples make no 2 blocks"),
        ([[0], [1]], [0, 1], 0, "make no 0 blocks"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    batches: list[list[int]], labels: list[float], n_blocks: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        mixing(batches, labels, blocks=n_blocks)


def test_every_way_has_a_panel_of_one_scale_that_says_how_good_it_is_and_what_it_holds() -> None:
    mixed, held = (mixing(batched(range(64), 8), range(64), blocks=8, memory=n) for n in (None, 99))
    figure = draw_together({"in order": mixed, "buffer": held, "c": mixed, "d": mixed})
    panels = [panel for panel in figure.axes if panel.get_images()]
    assert [panel.get_title() for panel in panels] == [
        f"in order\nscatter {mixed.ratio:.1f} × ideal",
        f"buffer (99 held)\nscatter {mixed.ratio:.1f} × ideal",
        f"c\nscatter {mixed.ratio:.1f} × ideal",
        f"d\nscatter {mixed.ratio:.1f} × ideal",
    ]
    scales = {image.get_clim() for panel in panels for image in panel.get_images()}
    assert scales == {(0, BRIGHTEST)}
