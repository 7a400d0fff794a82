"""Claims: the file format is strict, and the counts and sets are true."""

from pathlib import Path

import pytest

from benchmarks.claims.__main__ import main
from notebooks.claims import Claim, read_claims

TESTED = [claim for claim in read_claims() if claim.check and claim.kind in ("count", "set")]

WHOLE = """
[[claim]]
id = "a"
notebook = "90"
text = "as fast"
source = "measured here"
kind = "ratio"
band = [0.5, 2]
check = "operator:index"
"""


@pytest.mark.slow
@pytest.mark.parametrize("claim", TESTED, ids=[claim.id for claim in TESTED])
def test_count_or_set_matches_the_prose(claim: Claim) -> None:
    found = claim.measure()
    assert claim.holds(found), f"{claim.text!r}: found {found}"


def test_claim_is_read_with_all_fields(tmp_path: Path) -> None:
    path = tmp_path / "claims.toml"
    path.write_text(WHOLE, "utf-8")
    (claim,) = read_claims(path)
    assert claim.band == (0.5, 2)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('source = "measured here"\n', "", "Claim a in claims.toml lacks source"),
        ("band = [0.5, 2]\n", "", "lacks band"),
        ('kind = "ratio"', 'kind = "guess"', "the kind is one of count, set"),
        ("[0.5, 2]", "[0.5, 2]\nauthor = 3", "remove author"),
        ("[[claim]]", WHOLE + "[[claim]]", "Two claims in claims.toml are called a"),
    ],
)
def test_invalid_claim_raises_error(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    path = tmp_path / "claims.toml"
    path.write_text(WHOLE.replace(old, new), "utf-8")
    with pytest.raises(ValueError, match=complaint):
        read_claims(path)


@pytest.mark.parametrize(
    ("kind", "expected", "found", "holds"),
    [("count", 3, 3, True), ("count", 3, 4, False), ("set", [1, 2], (2, 1), True)],
)
def test_counts_and_sets_are_compared(
    kind: str, expected: object, found: object, holds: bool
) -> None:
    assert Claim("a", "90", "", "", kind, expected=expected).holds(found) is holds


@pytest.mark.parametrize(("found", "holds"), [(0.5, True), (2, True), (2.1, False)])
def test_ratio_holds_inside_its_band(found: float, holds: bool) -> None:
    assert Claim("a", "90", "", "", "ratio", band=(0.5, 2)).holds(found) is holds


def test_benchmark_measures_and_checks_every_ratio(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = {"benchmarks_sample_a": 1.0, "benchmarks_sample_b": 3.0}
    claims = [Claim(name, "90", "", "", "ratio", band=(0.5, 2)) for name in measured]
    monkeypatch.setattr("benchmarks.claims.__main__.read_claims", lambda: claims)
    monkeypatch.setattr(Claim, "measure", lambda claim: measured[claim.id])
    assert main([]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.endswith("  holds") for line in lines] == [False, True, False]
    assert main(["91"]) == 0
