import subprocess
from pathlib import Path

import pytest

from docs.budget import main

ROOMS = """
shop = {{paths = ["shop"], lines = {shop}}}
cellar = {{paths = ["shop/cellar", "setup.py"], lines = 3}}
"""


def test_one_line_too_many_in_a_room_fails(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    files = {"shop/a.py": "1\n\n", "shop/cellar/b.py": "1\n2", "setup.py": "1\n", "shop/c.md": "1"}
    cellar, nowhere = {"shop/cellar/a.css": "1\n"}, {"b.js": "1\n"}
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    for shop, more, rooms in (
        (2, {}, []),
        (1, {}, ["shop"]),
        (2, cellar, ["cellar"]),
        (9, cellar | nowhere, ["(no room)", "cellar"]),
    ):
        for name, text in {**files, **more, "docs/budget.toml": ROOMS.format(shop=shop)}.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text, "utf-8")
        subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
        assert main(tmp_path) == bool(rooms)
        lines = capsys.readouterr().out.splitlines()
        assert [line[:24].strip() for line in lines if line.endswith("too many")] == rooms
