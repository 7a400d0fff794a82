import subprocess
from pathlib import Path

import pytest

from docs.budget import main

ROOMS = """
shop = {{paths = ["shop"], lines = {shop}}}
cellar = {{paths = ["shop/cellar", "setup.py"], lines = 3}}
"""


@pytest.mark.parametrize(
    ("shop", "more", "said"),
    [(2, "", ""), (1, "", "shop"), (2, "shop/cellar/a.css", "cellar"), (9, "b.js", "(no room)")],
)
def test_one_line_too_many_in_a_room_fails(
    shop: int, more: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = {"shop/a.py": "1\n\n", "shop/cellar/b.py": "1\n2", "setup.py": "1\n", "shop/c.md": "1"}
    texts |= {"docs/budget.toml": ROOMS.format(shop=shop)} | ({more: "1\n"} if more else {})
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    assert main(tmp_path) == bool(said)
    over = [line for line in capsys.readouterr().out.splitlines() if line.endswith("too many")]
    assert [line[:24].strip() for line in over] == [said] * bool(said)
