import xml.etree.ElementTree as ET
from dataclasses import replace

from keepfed.measure.advice import Measurements, recommend, with_arguments
from keepfed.measure.advice.rules import judge
from keepfed.measure.diagnosis.compare import LoopComparison
from keepfed.measure.diagnosis.report import Diagnosis, evidence
from tests.measure.handmade import HUNGRY, hungry, naive


def concluded(m: Measurements, proof: LoopComparison | None = None, **asked: bool) -> Diagnosis:
    cause = judge(m)
    return Diagnosis(recommend(m, cause, []), m, naive(), proof, **asked)


def test_report_contains_verdict_change_gain_runs_and_evidence() -> None:
    found = concluded(hungry(computing_s=0.01, stages={"a<b": 0.1}))
    lines = repr(found).splitlines()
    assert lines[0].startswith("Storage: ")
    assert lines[1].startswith("Change: copy the data to a local disk")
    assert lines[2].startswith("Predicted gain: training ")
    assert lines[3].startswith("Headroom: ")
    bars = {line.split("#")[0].strip(): line.count("#") for line in lines[5:8]}
    assert bars == {"loader alone": 39, "step alone": 16, "together": 40}
    html = found._repr_mimebundle_()["text/html"]
    page = ET.fromstring(f"<page>{html}</page>")
    assert page.find(".//{http://www.w3.org/2000/svg}svg") is not None
    assert "<script" not in html
    for name in (*bars, *evidence(found.measurements)):
        assert f"  {name} " in repr(found)
        assert f">{name}<" in html


def test_report_limits_the_gain_and_mentions_existing_workers() -> None:
    bound = repr(concluded(hungry(together_s=0.022)))
    assert "Predicted gain" not in bound
    assert "Headroom" not in bound  # it is part of the verdict
    assert "at most" in repr(concluded(hungry(workers=4)))
    assert "gain" not in repr(concluded(hungry(batch_bytes=10**9, free_bytes=8e9)))
    assert evidence(HUNGRY)["workers"].startswith("2 by ")
    found = evidence(hungry(workers=0))
    assert found["workers"].startswith("none")
    assert "moved" not in found["batch"]


def test_report_prints_the_proof_or_why_there_is_none() -> None:
    proof = LoopComparison(with_arguments(num_workers=4), (0.084, 0.09, 0.093), (0.03, 0.03, 0.03))
    said = repr(concluded(HUNGRY, proof, asked_to_prove=True))
    assert "Proved: 30 ms per batch with the change and 90 ms without, so it is 3.0 times" in said
    assert "(2.8 to 3.1 in 3 rounds)" in said
    unproved = concluded(HUNGRY, asked_to_prove=True)
    assert "Not proved: this change needs your code." in repr(unproved)
    finding = replace(unproved.finding, how=with_arguments(num_workers=4))
    said = repr(replace(unproved, finding=finding))
    assert "too few batches arrived in time. Increase `seconds`." in said
    assert "roved" not in repr(concluded(HUNGRY))
