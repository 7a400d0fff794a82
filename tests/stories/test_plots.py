from fontTools.ttLib import TTFont

from course_utils.paths import REPO
from course_utils.plots import TYPEFACE

PLACES = "slides/*.md", "slides/figures/**/*.py", "docs/**/*.md", "notebooks/source/*.py"


def test_typeface_has_the_letters_of_all_texts_and_its_license() -> None:
    texts = "".join(path.read_text("utf-8") for place in PLACES for path in REPO.glob(place))
    for font in TYPEFACE.glob("*.ttf"):
        assert set(texts) - {"\n"} <= set(map(chr, TTFont(font).getBestCmap())), font
    assert "SIL OPEN FONT LICENSE Version 1.1" in (TYPEFACE / "OFL.txt").read_text("utf-8")
    assert sum(path.stat().st_size for path in TYPEFACE.iterdir()) < 500_000
