"""Claims of the deck "Why data" about its computed figures."""

import numpy as np
import pytest

from slides.figures.why_data import JOBS, REFIT, _likeness, demand, tokens_per_parameter


@pytest.mark.slow
def test_trained_encoders_match_most_new_pairs() -> None:
    found = [np.sum(_likeness(steps).argmax(axis=1) == range(8)) for steps in (0, 50)]
    assert found[0] <= 2
    assert found[1] >= 6


def test_tokens_per_parameter_minimize_the_loss() -> None:
    compute = np.array(1e24)
    best = np.sqrt(compute / 6 / tokens_per_parameter(compute, REFIT))
    parameters = best * np.array([0.8, 1, 1.25])
    tokens = compute / 6 / parameters
    loss = REFIT["A"] / parameters ** REFIT["alpha"] + REFIT["B"] / tokens ** REFIT["beta"]
    assert loss.argmin() == 1


def test_small_event_models_need_more_than_large_text_models() -> None:
    rates = [demand(name) for name in JOBS]
    assert rates[0] < rates[1] < 117 < min(rates[2:])
    assert rates[3] / rates[0] == pytest.approx(16 / 2 * 7e9 / 1e6)
