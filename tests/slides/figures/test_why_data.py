"""What the deck "Why data" says of its computed figures."""

import numpy as np
import pytest

from slides.figures.why_data import JOBS, REFIT, _likeness, demand, tokens_per_parameter


@pytest.mark.slow
def test_trained_encoders_find_the_partner_of_most_new_pictures() -> None:
    found = [np.sum(_likeness(steps).argmax(axis=1) == range(8)) for steps in (0, 50)]
    assert found[0] <= 2
    assert found[1] >= 6


def test_the_fit_divides_a_budget_where_its_loss_is_least() -> None:
    compute = np.array(1e24)
    best = np.sqrt(compute / 6 / tokens_per_parameter(compute, REFIT))
    parameters = best * np.array([0.8, 1, 1.25])
    tokens = compute / 6 / parameters
    loss = REFIT["A"] / parameters ** REFIT["alpha"] + REFIT["B"] / tokens ** REFIT["beta"]
    assert loss.argmin() == 1


def test_small_models_of_events_ask_for_more_than_large_ones_of_text() -> None:
    rates = [demand(name) for name in JOBS]
    assert rates[0] < rates[1] < 117 < min(rates[2:])
    assert rates[3] / rates[0] == pytest.approx(16 / 2 * 7e9 / 1e6)
