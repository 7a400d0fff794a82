import numpy as np
import pytest
from numpy.typing import NDArray

from course_utils.loading.events import CASCADE
from data_scripts.simulate import EVENTS_PER_RUN, Runs, draw_events

COUNT = 50_000


@pytest.fixture(scope="module")
def drawn() -> tuple[NDArray[np.void], Runs]:
    return draw_events(COUNT, np.random.default_rng(0))


def test_events_are_sorted_by_energy(drawn: tuple[NDArray[np.void], Runs]) -> None:
    energy = drawn[0]["energy_gev"]

    assert (np.diff(energy) >= 0).all()
    assert energy[0] >= 100
    assert energy[-1] <= 1e6


def test_ten_times_the_energy_is_ten_times_as_rare(drawn: tuple[NDArray[np.void], Runs]) -> None:
    energy = drawn[0]["energy_gev"]
    above = [(energy > limit).sum() for limit in (100, 1_000, 10_000)]

    assert above[0] / above[1] == pytest.approx(10, rel=0.1)
    assert above[1] / above[2] == pytest.approx(10, rel=0.2)


def test_directions_are_the_same_all_over_the_sky(drawn: tuple[NDArray[np.void], Runs]) -> None:
    azimuth, zenith = drawn[0]["azimuth"], drawn[0]["zenith"]
    octants, _, _ = np.histogram2d(azimuth, np.cos(zenith), [4, 2], [[0, 2 * np.pi], [-1, 1]])

    np.testing.assert_allclose(octants, COUNT / 8, rtol=0.05)


def test_every_event_id_occurs_once_and_runs_follow_the_ids(
    drawn: tuple[NDArray[np.void], Runs],
) -> None:
    events, runs = drawn

    assert sorted(events["event_id"]) == list(range(COUNT))
    np.testing.assert_array_equal(events["run_id"], events["event_id"] // EVENTS_PER_RUN)
    assert len(runs.gain) == COUNT // EVENTS_PER_RUN


def test_cascades_are_the_rarer_kind_and_their_share_differs_from_run_to_run(
    drawn: tuple[NDArray[np.void], Runs],
) -> None:
    events, runs = drawn
    cascade = events["kind"] == CASCADE
    shares = np.bincount(events["run_id"], cascade) / EVENTS_PER_RUN

    assert 0.10 < cascade.mean() < 0.14
    assert np.corrcoef(shares, runs.cascade_share)[0, 1] > 0.9
    assert shares.std() > 0.05
