from course_utils.measure.picture import facts
from course_utils.measure.picture.captions import sentence
from tests.measure.handmade import naive, span, trace_of


def test_the_sentence_says_busy_idle_reason_and_start_up():
    said = sentence(naive(steps=5), "naive loop")
    assert said == (
        "Naive loop: the GPU computes 25 % of the time and waits 75 %, mostly for read; "
        "15 % is start-up."
    )


def test_the_sentence_needs_no_name():
    assert sentence(naive()).startswith("The GPU computes 25 %")


def test_a_busy_gpu_needs_no_reason():
    assert sentence(trace_of(span("gpu", "compute", 0, 10))) == (
        "The GPU computes 100 % of the time and waits 0 %."
    )


def test_waiting_that_is_all_start_up_is_named_so():
    trace = trace_of(span("main", "wait", 0, 5, 0), span("gpu", "compute", 5, 10, 0))
    assert sentence(trace).endswith("waits 50 %, nearly all of it start-up.")


def test_a_trace_without_steps_says_what_to_do():
    assert "gpu.step(batch)" in sentence(trace_of(span("main", "read", 0, 5)))


def test_facts_count_gaps_and_the_longest():
    assert facts(naive(steps=2))["GPU idle"] == "2 gaps, longest 30 ms"
    assert facts(naive(steps=1))["GPU idle"] == "1 gap, longest 30 ms"


def test_the_launch_of_the_next_step_is_no_gap():
    trace = trace_of(span("gpu", "compute", 0, 10), span("gpu", "compute", 10.05, 20))
    assert facts(trace)["GPU idle"] == "0 gaps"
