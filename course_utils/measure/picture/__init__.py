"""Draw a trace: as a widget, as SVG, as text; one model for all."""

from course_utils.measure.picture.model import LOOKS, Control, Picture, columns, facts, key, states
from course_utils.measure.picture.static import as_svg, as_text
from course_utils.measure.picture.timeline import Timeline, TimelineGrid, module_source
