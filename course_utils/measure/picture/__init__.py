"""Draw a trace: as a widget, as SVG, as text; one model and one palette for all."""

from course_utils.measure.picture.model import Control, Picture, facts, key, states
from course_utils.measure.picture.palette import LOOKS
from course_utils.measure.picture.static import as_svg, as_text
from course_utils.measure.picture.timeline import Timeline, TimelineGrid
