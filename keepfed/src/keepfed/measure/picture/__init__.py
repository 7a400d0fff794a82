"""Draw a trace as a widget, as SVG or as text, from the same model."""

from keepfed.measure.picture.model import LOOKS, Control, Picture, columns, facts, key, states
from keepfed.measure.picture.static import as_svg, as_text
from keepfed.measure.picture.timeline import Timeline, TimelineGrid, module_source, page_script
