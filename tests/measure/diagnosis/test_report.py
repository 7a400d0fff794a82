from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any, get_args

import pytest

from course_utils.measure.diagnosis import Cause
from course_utils.measure.diagnosis.differential import concluded
from course_utils.measure.diagnosis.report import evidence, sentence
from tests.measure.handmade import HUNGRY, hungry, naive


def test_the_page_says_verdict_change_gain_headspace_and_evidence() -> None:
    found = concluded(hungry(computing_s=0.01), naive())
    lines = repr(found).splitlines()
    assert lines[0].startswith("Storage: ")
    assert lines[1] == "Change: num_workers=8."
    assert lines[2].startswith("Predicted gain: training ")
    assert lines[3].startswith("Headspace: ")
    assert all(f"  {name} " in repr(found) for name in found.evidence)


@pytest.mark.parametrize("name", ["loader alone", "step alone", "together"])
def test_the_three_runs_are_drawn_as_bars(name: str) -> None:
    found = concluded(HUNGRY, naive())
    assert f"  {name}" in repr(found)
    assert name in found._repr_mimebundle_()["text/html"]


def test_the_longest_bar_is_as_long_as_can_be() -> None:
    text = repr(concluded(HUNGRY, naive()))
    bars = {line.split("#")[0].strip(): line.count("#") for line in text.splitlines()[5:8]}
    assert bars == {"loader alone": 39, "step alone": 16, "together": 40}


def test_the_html_is_well_formed_and_holds_the_timeline() -> None:
    html = concluded(hungry(stages={"a<b": 0.1}), naive())._repr_mimebundle_()["text/html"]
    page = ET.fromstring(f"<page>{html}</page>")
    assert page.find(".//{http://www.w3.org/2000/svg}svg") is not None
    assert "<script" not in html


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"together_s": 0.022}, "Predicted gain: none"),
        ({"workers": 4}, "at most"),
        ({"batch_bytes": 10**9, "free_bytes": 8e9}, "not speed"),
    ],
)
def test_the_gain_is_no_more_than_can_be_promised(changes: dict[str, Any], says: str) -> None:
    assert says in repr(concluded(hungry(**changes), naive()))


@pytest.mark.parametrize("cause", get_args(Cause))
def test_every_cause_is_said_in_one_sentence(cause: Cause) -> None:
    said = sentence(HUNGRY, cause)
    assert said[0].isupper()
    assert said.endswith(".")
    assert ". " not in said


def test_the_stage_is_named_if_the_dataset_names_it() -> None:
    said = sentence(hungry(stages={"read": 0.01, "decode": 0.09}), "CPU")
    assert said.startswith("CPU in the stage decode: a fetch computes")
    assert "90 % of it there" in said


def test_few_cores_and_many_threads_are_named() -> None:
    assert "share 1 core of 4" in sentence(hungry(worker_cores=1), "CPU")
    pools = hungry(one_thread_gain=15.0, pool_threads=8)
    assert "2 workers with 8 threads each" in sentence(pools, "CPU")


def test_without_workers_nothing_is_said_of_them() -> None:
    found = evidence(hungry(workers=0))
    assert found["workers"].startswith("none")
    assert "moving a batch" not in found
