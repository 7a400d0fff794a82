"""Counted claims of the slides agree with their checks."""

import pytest

from notebooks.claims import Claim, read_claims
from slides.build.rich_text import SLIDES

COUNTED = [claim for claim in read_claims(SLIDES / "claims.toml") if claim.check]


@pytest.mark.parametrize("claim", COUNTED, ids=[claim.id for claim in COUNTED])
def test_counted_claim_agrees_with_its_check(claim: Claim) -> None:
    found = claim.measure()
    assert claim.holds(found), f"{claim.text!r}: found {found}"
