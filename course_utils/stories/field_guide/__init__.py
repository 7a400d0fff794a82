"""The field guide in a notebook: entries as cards, a search box, and runs of the programs."""

from course_utils.stories.field_guide.cards import pages
from course_utils.stories.field_guide.programs import missing_requirement, show
from course_utils.stories.field_guide.search import Search
