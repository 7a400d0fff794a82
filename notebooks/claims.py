"""Read `claims.toml`: what the notebooks say in figures, and how each is checked."""

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

CLAIMS = Path(__file__).resolve().parent / "claims.toml"
KINDS = {
    "count": ("expected",),
    "set": ("expected",),
    "ratio": ("band", "check"),
    "figure": (),
    "quote": (),
}


@dataclass(frozen=True)
class Claim:
    """One statement of a notebook."""

    id: str
    notebook: str  # number, such as "02"
    text: str  # a fragment of its prose, word for word
    source: str
    kind: str  # one of KINDS
    expected: Any = None  # of a count or a set
    band: tuple[float, float] | None = None  # of a ratio: lowest and highest
    check: str = ""  # "module:function", which returns what is to be compared

    def measure(self) -> Any:
        """Run the check and return what it found."""
        module, _, name = self.check.partition(":")
        measured: Callable[[], Any] = getattr(import_module(module), name)
        return measured()

    def holds(self, found: Any) -> bool:
        """Tell whether what the check found agrees with the claim."""
        if self.band is not None:
            return bool(self.band[0] <= found <= self.band[1])
        return bool(
            set(found) == set(self.expected) if self.kind == "set" else found == self.expected
        )


def read_claims(path: Path = CLAIMS) -> list[Claim]:
    """Return the claims in `path`.

    Raises:
        ValueError: an entry is incomplete, or two have one id; the message names it.
    """
    claims: dict[str, Claim] = {}
    for entry in tomllib.loads(path.read_text("utf-8")).get("claim", ()):
        name = entry.get("id", "without an id")
        required = {"id", "notebook", "text", "source", "kind", *KINDS.get(entry.get("kind"), ())}
        if missing := sorted(required - entry.keys()):
            raise ValueError(f"Claim {name} in {path.name} lacks {', '.join(missing)}: add it.")
        if unknown := sorted(entry.keys() - Claim.__dataclass_fields__.keys()):
            raise ValueError(f"Claim {name} in {path.name}: remove {', '.join(unknown)}.")
        if entry["kind"] not in KINDS:
            raise ValueError(f"Claim {name} in {path.name}: the kind is one of {', '.join(KINDS)}.")
        if name in claims:
            raise ValueError(f"Two claims in {path.name} are called {name}: rename one.")
        band = tuple(entry["band"]) if "band" in entry else None
        claims[name] = Claim(**{**entry, "band": band})
    return list(claims.values())
