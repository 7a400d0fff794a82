import numpy as np
import pytest
from numpy.typing import NDArray

from course_utils.loading.events import CASCADE
from data_scripts.simulate import (
    CHARGE_STEP,
    EVENTS_PER_RUN,
    TRIGGER_SENSORS,
    Runs,
    draw_events,
    simulate,
)
from data_scripts.telescope import SENSORS, SENSORS_PER_STRING

MANY, COUNT = 50_000, 500
Drawn = tuple[NDArray[np.void], Runs]
Simulated = tuple[NDArray[np.void], Runs, NDArray[np.float32], NDArray[np.int64]]


@pytest.fixture(scope="module")
def drawn() -> Drawn:
    return draw_events(MANY, np.random.default_rng(0))


@pytest.fixture(scope="module")
def simulated() -> Simulated:
    events, runs = draw_events(COUNT, np.random.default_rng(3))
    return events, runs, *simulate(events, runs, np.random.default_rng(4))


def test_events_are_sorted_by_energy_and_ten_times_as_much_is_ten_times_as_rare(
    drawn: Drawn,
) -> None:
    energy = drawn[0]["energy_gev"]
    above = [(energy > limit).sum() for limit in (100, 1_000, 10_000)]

    assert (np.diff(energy) >= 0).all()
    assert 100 <= energy[0] <= energy[-1] <= 1e6
    assert above[0] / above[1] == pytest.approx(10, rel=0.1)
    assert above[1] / above[2] == pytest.approx(10, rel=0.2)


def test_directions_cover_the_sky_and_runs_follow_the_ids(drawn: Drawn) -> None:
    events, runs = drawn
    places = events["azimuth"], np.cos(events["zenith"])
    octants, _, _ = np.histogram2d(*places, [4, 2], [[0, 2 * np.pi], [-1, 1]])

    np.testing.assert_allclose(octants, MANY / 8, rtol=0.05)
    assert sorted(events["event_id"]) == list(range(MANY))
    np.testing.assert_array_equal(events["run_id"], events["event_id"] // EVENTS_PER_RUN)
    assert len(runs.gain) == MANY // EVENTS_PER_RUN


def test_cascades_are_the_rarer_kind_and_their_share_differs_from_run_to_run(drawn: Drawn) -> None:
    events, runs = drawn
    cascade = events["kind"] == CASCADE
    shares = np.bincount(events["run_id"], cascade) / EVENTS_PER_RUN

    assert 0.10 < cascade.mean() < 0.14
    assert np.corrcoef(shares, runs.cascade_share)[0, 1] > 0.9
    assert shares.std() > 0.05


def test_events_have_a_hundred_pulses_on_average_in_order_of_time_and_some_many_more(
    simulated: Simulated,
) -> None:
    *_, pulses, counts = simulated

    assert len(pulses) == counts.sum()
    assert 70 < counts.mean() < 140
    assert counts.max() > 5 * np.median(counts)
    for event in np.split(pulses, counts.cumsum()[:-1]):
        assert (np.diff(event[:, 0]) >= 0).all()
        assert len(np.unique(event[event[:, 3] == 0, 2])) >= TRIGGER_SENSORS


def test_pulses_come_in_the_steps_of_the_public_data_and_none_from_dead_strings(
    simulated: Simulated,
) -> None:
    events, runs, pulses, counts = simulated
    time, charge, sensor_id, auxiliary = pulses.T

    assert (time == time.round()).all()
    assert time.min() >= 0
    np.testing.assert_allclose(charge / CHARGE_STEP, (charge / CHARGE_STEP).round(), atol=1e-2)
    assert charge.min() > 0
    assert set(sensor_id) <= set(range(SENSORS))
    assert set(auxiliary) == {0, 1}
    assert runs.dead.any()
    string = sensor_id.astype(int) // SENSORS_PER_STRING
    assert not runs.dead[np.repeat(events["run_id"], counts), string].any()


def test_auxiliary_pulses_have_no_company_on_their_string(simulated: Simulated) -> None:
    *_, pulses, counts = simulated
    event = pulses[: counts[0]]
    sensors = np.unique(event[:, 2]).astype(int)
    string, place = np.divmod(sensors, SENSORS_PER_STRING)
    apart = np.abs(place[:, None] - place)
    company = ((string[:, None] == string) & (apart > 0) & (apart <= 2)).any(axis=1)

    alone = set(sensors[~company])
    assert {int(s) in alone for s in event[event[:, 3] == 1, 2]} == {True}
    assert {int(s) in alone for s in event[event[:, 3] == 0, 2]} == {False}
