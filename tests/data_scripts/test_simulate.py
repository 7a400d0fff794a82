import numpy as np
import pytest
from numpy.typing import NDArray

from data_scripts.simulate import CHARGE_STEP, TRIGGER_SENSORS, Runs, draw_events, simulate
from data_scripts.telescope import SENSORS, SENSORS_PER_STRING

COUNT = 500
Simulated = tuple[NDArray[np.void], Runs, NDArray[np.float32], NDArray[np.int64]]


@pytest.fixture(scope="module")
def simulated() -> Simulated:
    events, runs = draw_events(COUNT, np.random.default_rng(3))
    return events, runs, *simulate(events, runs, np.random.default_rng(4))


def test_the_same_seed_gives_the_same_bytes(simulated: Simulated) -> None:
    events, runs, pulses, counts = simulated
    again, counts_again = simulate(events, runs, np.random.default_rng(4))

    assert again.tobytes() == pulses.tobytes()
    np.testing.assert_array_equal(counts_again, counts)


def test_events_have_a_hundred_pulses_on_average_and_some_have_many_more(
    simulated: Simulated,
) -> None:
    _, _, pulses, counts = simulated

    assert len(pulses) == counts.sum()
    assert 70 < counts.mean() < 140
    assert counts.max() > 5 * np.median(counts)


def test_every_event_lights_enough_sensors_to_trigger(simulated: Simulated) -> None:
    *_, pulses, counts = simulated

    for event in np.split(pulses, counts.cumsum()[:-1]):
        assert len(np.unique(event[event[:, 3] == 0, 2])) >= TRIGGER_SENSORS


def test_pulses_of_an_event_are_in_the_order_of_time(simulated: Simulated) -> None:
    *_, pulses, counts = simulated

    assert all((np.diff(e[:, 0]) >= 0).all() for e in np.split(pulses, counts.cumsum()[:-1]))


def test_time_and_charge_come_in_the_steps_of_the_public_data(simulated: Simulated) -> None:
    time, charge, sensor_id, auxiliary = simulated[2].T

    assert (time == time.round()).all()
    assert time.min() >= 0
    np.testing.assert_allclose(charge / CHARGE_STEP, (charge / CHARGE_STEP).round(), atol=1e-2)
    assert charge.min() > 0
    assert set(sensor_id) <= set(range(SENSORS))
    assert set(auxiliary) == {0, 1}


def test_dead_strings_are_silent(simulated: Simulated) -> None:
    events, runs, pulses, counts = simulated
    run = np.repeat(events["run_id"], counts)
    string = pulses[:, 2].astype(int) // SENSORS_PER_STRING

    assert runs.dead.any()
    assert not runs.dead[run, string].any()


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
