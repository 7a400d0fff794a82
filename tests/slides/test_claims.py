from notebooks.claims import read_claims
from slides.build.rich_text import SLIDES


def test_counted_claim_agrees_with_its_check() -> None:
    for claim in read_claims(SLIDES / "claims.toml"):
        assert not claim.check or claim.holds(found := claim.measure()), (claim.text, found)
