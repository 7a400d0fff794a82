from typing import Any

import pytest

from course_utils.teaching.explorer import STRATEGIES, explorer, run_pipeline
from keepfed.formatting import percent
from keepfed.measure.simulate import Pipeline, simulate


@pytest.mark.slow
def test_every_strategy_is_at_least_as_good_as_the_previous_one() -> None:
    box = explorer(start={"load": 80, "step": 50, "workers": 2})
    idle = []
    for strategy in STRATEGIES:
        box.state = {**box.state, "strategy": strategy}
        idle.append(box.idle)
        assert box.picture.facts["Idle cost of a month (730 h)"].endswith("of 1,460 €")
        assert (box.picture.facts["Speed"] == "1.0 times naive") == (strategy == "naive")
    assert idle == sorted(idle, reverse=True)
    assert idle[0] > 0.5
    assert idle[-1] < 0.05
    assert len(box.to_html()) < 200_000  # a static page with all states


@pytest.mark.slow
def test_measurement_is_drawn_below_its_prediction() -> None:
    box = explorer(start={"strategy": "workers", "load": 20, "step": 20, "workers": 1})
    measured = box.measure()
    assert measured.summary().complete
    assert measured.samples == 60 * 64
    assert "emulated" in measured.note
    assert box.picture.names == ("workers, predicted", "measured")
    starts = [trace.summary().start_up_s for trace in box.picture.traces]
    assert starts[0] == pytest.approx(starts[1], abs=0.05)  # of the workers is predicted too
    assert f"{percent(measured.summary().au)} measured" in str(box.picture.facts)


@pytest.mark.slow
@pytest.mark.alone
def test_real_run_has_the_predicted_utilization(retry: Any) -> None:
    # a loop that only waits, so a busy machine hardly changes it
    loop = Pipeline(read_ms=60, step_ms=30, steps=20, num_workers=2, storage_streams=1)
    predicted = simulate(loop).summary().au
    measured = retry(lambda: run_pipeline(loop).summary().au, lambda au: abs(au - predicted) < 0.05)
    assert measured == pytest.approx(predicted, abs=0.05)
