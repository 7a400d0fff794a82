"""The field guide in a notebook: its entries as cards, a box to search them, their programs run."""

from course_stories.field_guide.cards import pages
from course_stories.field_guide.programs import lacking, show
from course_stories.field_guide.search import Search
