import re
import subprocess

import matplotlib.pyplot as plt

from course_utils.paths import REPO
from keepfed.palette import SERIES

HEX = re.compile(r"(?<![\w/&])#(?:[0-9a-f]{6}|[0-9a-f]{3})(?:[0-9a-f]{2})?\b", re.IGNORECASE)
KINDS = ["*.py", "*.css", "*.js", "*.html", "*.mplstyle"]
ELSEWHERE = ("tests/", "keepfed/tests/", "slides/build/vendor/", "keepfed/src/keepfed/palette.py")


def test_files_use_only_colors_of_the_palette() -> None:
    declared = set(HEX.findall((REPO / "keepfed/src/keepfed/palette.py").read_text("utf-8")))
    listed = subprocess.run(
        ["git", "ls-files", "--", *KINDS], cwd=REPO, capture_output=True, text=True, check=True
    )
    foreign = []
    for name in listed.stdout.splitlines():
        if not name.startswith(ELSEWHERE) and (REPO / name).exists():
            used = {color[:7] for color in HEX.findall((REPO / name).read_text("utf-8"))}
            foreign += [(name, used - (set() if name.endswith(".py") else declared))]
    assert {name: colors for name, colors in foreign if colors} == {}


def test_plots_follow_the_series() -> None:
    with plt.style.context("course_utils.plots.style"):
        cycle = plt.rcParams["axes.prop_cycle"].by_key()["color"]
    assert tuple(cycle) == SERIES
