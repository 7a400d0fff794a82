from pathlib import Path

import pytest

from notebooks.claims import Claim, read_claims

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
def test_counts_and_sets_match_the_prose() -> None:
    claims = [claim for claim in read_claims() if claim.check and claim.kind in ("count", "set")]
    measured = [(claim, claim.measure()) for claim in claims]
    assert {claim.text: found for claim, found in measured if not claim.holds(found)} == {}


def test_file_of_claims_is_strict(tmp_path: Path) -> None:
    path = tmp_path / "claims.toml"
    path.write_text(WHOLE, "utf-8")
    (claim,) = read_claims(path)
    assert claim.band == (0.5, 2)
    for old, new, complaint in (
        ('source = "measured here"\n', "", "Claim a in claims.toml lacks source"),
        ("band = [0.5, 2]\n", "", "lacks band"),
        ('kind = "ratio"', 'kind = "guess"', "the kind is one of count, set"),
        ("[0.5, 2]", "[0.5, 2]\nauthor = 3", "remove author"),
        ("[[claim]]", WHOLE + "[[claim]]", "Two claims in claims.toml are called a"),
    ):
        path.write_text(WHOLE.replace(old, new), "utf-8")
        with pytest.raises(ValueError, match=complaint):
            read_claims(path)


def test_counts_sets_and_ratios_are_compared() -> None:
    for kind, expected, found in (("count", 3, 3), ("count", 3, 4), ("set", [1, 2], (2, 1))):
        claim = Claim("a", "90", "", "", kind, expected=expected)
        assert claim.holds(found) == (found != 4)
    for ratio, holds in ((0.5, True), (2, True), (2.1, False)):
        assert Claim("a", "90", "", "", "ratio", band=(0.5, 2)).holds(ratio) is holds
