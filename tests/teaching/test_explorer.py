from __future__ import annotations

import pytest

from course_utils.measure.simulate import simulate
from course_utils.teaching.explorer import explorer
from course_utils.teaching.explorer.explorer import STRATEGIES


def test_every_strategy_is_at_least_as_good_as_the_one_before_it() -> None:
    box = explorer(load_ms=(80,), step_ms=(50,), num_workers=(2,))
    idle = []
    for strategy in STRATEGIES:
        box.state = {**box.state, "strategy": strategy}
        idle.append(box.idle)
    assert idle == sorted(idle, reverse=True)
    assert idle[0] > 0.5
    assert idle[-1] < 0.05


def test_the_cards_name_speed_and_cost_for_the_price_given() -> None:
    box = explorer(load_ms=(80,), step_ms=(50,), num_workers=(2,), eur_per_hour=3.0)
    figures = box.picture.facts
    assert figures["Speed"] == "1.0 times naive"
    assert figures["Idle time costs"].endswith("of 2,190 € a month")


def test_the_pipeline_of_the_state_is_the_one_that_was_drawn() -> None:
    box = explorer(load_ms=(80,), step_ms=(50,), num_workers=(2,), start={"strategy": "pinned"})
    assert simulate(box.pipeline).summary().idle == box.idle


def test_a_static_page_of_all_states_stays_below_its_bar() -> None:
    assert len(explorer().to_html()) < 200_000


@pytest.mark.slow
def test_a_measurement_is_drawn_below_its_prediction() -> None:
    box = explorer(load_ms=(20,), step_ms=(20,), num_workers=(1,), start={"strategy": "workers"})
    measured = box.measure()
    assert measured.summary().complete
    assert box.picture.names == ("workers, predicted", "measured")
