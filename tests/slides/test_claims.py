"""Counted claims of the slides agree with their checks."""

from notebooks.claims import read_claims
from slides.build.rich_text import SLIDES

COUNTED = [claim for claim in read_claims(SLIDES / "claims.toml") if claim.check]


def test_counted_claim_agrees_with_its_check() -> None:
    for claim in COUNTED:
        found = claim.measure()
        assert claim.holds(found), f"{claim.text!r}: found {found}"
