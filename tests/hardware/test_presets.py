import re
from pathlib import Path

from course_utils.hardware import gpu, storage
from course_utils.hardware.gpu import emulated
from course_utils.hardware.storage import presets


def test_every_figure_names_its_source_and_a_stream_is_no_faster_than_the_link():
    for module, names, sources in (
        (emulated, gpu.PRESETS, "specified|measured|assumed"),
        (presets, storage.PRESETS, "specified|typical|from memory"),
    ):
        lines = Path(module.__file__).with_name("presets.toml").read_text("utf-8").splitlines()
        figures = [line for line in lines if re.match(r"\w+ = ", line)]
        assert len(figures) > 7 * len(names)
        for line in figures:
            assert re.search(rf"  # ({sources})\b.*: \S", line), line
    assert all(preset.stream_mb_s <= preset.mb_s for preset in storage.PRESETS.values())
