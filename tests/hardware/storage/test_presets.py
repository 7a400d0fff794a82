from dataclasses import fields

import pytest

from course_utils.hardware.storage import PRESETS, StoragePreset, storage_preset

FIGURES = {field.name for field in fields(StoragePreset)} - {"name", "readahead", "sources"}


@pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)
def test_every_figure_has_a_source_and_a_request_is_never_faster_than_the_line(preset):
    assert set(preset.sources) == FIGURES
    kinds = ("specified: ", "typical: ", "from memory: ")
    assert all(text.startswith(kinds) for text in preset.sources.values())
    assert preset.stream_mb_s <= preset.mb_s


def test_a_preset_says_that_it_is_emulated():
    assert str(storage_preset("S3")).startswith("emulated S3 (100 ms a request, 64 at once")
