"""Claims of the slides: what is counted comes out as the slide says."""

import pytest

from notebooks.claims import Claim, read_claims
from slides.build.rich_text import SLIDES

COUNTED = [claim for claim in read_claims(SLIDES / "claims.toml") if claim.check]


@pytest.mark.parametrize("claim", COUNTED, ids=[claim.id for claim in COUNTED])
def test_a_count_is_what_the_slide_says(claim: Claim) -> None:
    found = claim.measure()
    assert claim.holds(found), f"{claim.text!r}: found {found}"
