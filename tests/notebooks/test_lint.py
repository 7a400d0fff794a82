from pathlib import Path

from notebooks.build import HERE, sources
from notebooks.claims import Claim, read_claims
from notebooks.lint import lint


def _lint(sample: Path, tmp_path: Path, old: str, new: str, *claims: Claim) -> list[str]:
    text = (sample / "90_try_the_build.py").read_text("utf-8")
    assert old in text
    path = tmp_path / "90_try_the_build.py"
    path.write_text(text.replace(old, new, 1), "utf-8")
    return lint(path, claims)


def _claim(text: str) -> Claim:
    return Claim(id="x", notebook="90", text=text, source="given", kind="figure")


def test_sources_and_sample_follow_the_rules(sample: Path) -> None:
    found = {path.stem: lint(path, read_claims()) for path in sources(HERE / "source")}
    assert {name: findings for name, findings in found.items() if findings} == {}
    assert lint(sample / "90_try_the_build.py", []) == []


def test_rule_violations_are_reported(sample: Path, tmp_path: Path) -> None:
    loader = "loader = DataLoader(Squares(), "
    for old, new, finding in (
        ("# 90 · Try", "# Try", "begin with the title"),
        ("**You need:**", "**Wanted:**", "you need"),
        ("{minutes}", "3", "minutes of its own"),
        ("· 1 min · ●○○ <!-- timed -->", "· 1 min · ●●○", "says 1 min and its dots 10"),
        ("· 1 min ·", "· 90 min ·", "the core takes 94 minutes"),
        ('cu.ready("90")', 'cu.ready("91")', "the first code cell is not"),
        ("You now can: build", "Build", "You now can"),
        ("import sample_checks", "x = 1\n" * 16, "has 17 lines, at most 15"),
        ("Squares from a worker.", "word " * 10_000, "the core takes 82 minutes"),
        ("index * index", "index * * index", "is not Python in the solved version"),
        ('cu.reveal("90a", 3)', "3", "90a needs both"),
        ('cu.check("90.2", batches)', 'cu.check("90.2", batches)\n3', "end the cell with"),
        ("batches = 3", "class Cubes: ...\nbatches = 3", "defines Cubes, unknown to workers"),
        ("num_workers=2", "num_workers=2, collate_fn=lambda x: x", "a lambda cannot go"),
        (loader, f"def collate(x): ...\n{loader}collate_fn=collate, ", "collate goes to workers"),
        ("Multiply", "This is 30 % faster. Multiply", "'30 %' is not in claims.toml"),
        ("Multiply", "This is 3 times faster. Multiply", "'3 times' is not in claims.toml"),
        ("Multiply", "It reads 1.5 GB/s. Multiply", "'1.5 GB' is not in claims.toml"),
    ):
        found = _lint(sample, tmp_path, old, new)
        assert len(found) == 1, (new, found)
        assert finding in found[0]


def test_numbers_of_the_prose_are_claims_unless_given(sample: Path, tmp_path: Path) -> None:
    prose = "Squares from a worker."
    for cell in ("`sleep 5 s`", "Idle below 15 %. <!-- given -->", "12 events"):
        assert _lint(sample, tmp_path, prose, cell) == []
    claim = _claim("The source says *30 %*; it is 23 %.")
    said = "The source says *30 %*;\n# it is 23 %."
    assert _lint(sample, tmp_path, prose, said, claim) == []
    (found,) = _lint(sample, tmp_path, "Squares", "Squares", _claim("It is 30 %."))
    assert "claim x is not in the prose" in found
