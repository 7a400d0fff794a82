"""The picture of who sits with whom."""

import numpy as np

from course_utils.loading.stream import batched, draw_together, mixing
from course_utils.loading.stream.mixing import Mixing
from course_utils.loading.stream.mixing_display import BRIGHTEST


def _mixed(memory: int | None = None) -> Mixing:
    return mixing(batched(range(64), 8), np.arange(64.0), blocks=8, memory=memory)


def test_every_way_has_a_panel_that_says_how_good_it_is_and_what_it_holds() -> None:
    figure = draw_together({"in order": _mixed(), "buffer": _mixed(1_000)})
    titles = [panel.get_title() for panel in figure.axes if panel.get_title()]
    assert titles == [
        f"in order\nscatter {_mixed().ratio:.1f} × ideal",
        f"buffer (1,000 held)\nscatter {_mixed().ratio:.1f} × ideal",
    ]


def test_all_panels_share_one_scale_of_colours() -> None:
    figure = draw_together({name: _mixed() for name in "abcd"})
    scales = {image.get_clim() for panel in figure.axes for image in panel.get_images()}
    assert scales == {(0, BRIGHTEST)}
    assert sum(bool(panel.get_images()) for panel in figure.axes) == 4
