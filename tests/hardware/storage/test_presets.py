import re
from pathlib import Path

from course_utils.hardware.storage import PRESETS, storage_preset
from course_utils.hardware.storage import presets as module


def test_every_figure_has_a_source_and_latency_bounds_the_link():
    lines = Path(module.__file__).with_name("presets.toml").read_text("utf-8").splitlines()
    figures = [line for line in lines if re.match(r"\w+ = ", line)]
    assert len(figures) == 8 * len(PRESETS) + 1  # ranges of a vector read
    assert [
        line for line in figures if not re.search(r"# (specified|typical|from memory): ", line)
    ] == []
    assert all(preset.stream_mb_s <= preset.mb_s for preset in PRESETS.values())


def test_preset_is_labeled_as_emulated():
    assert str(storage_preset("S3")).startswith("emulated S3 (100 ms a request, 64 at once")
