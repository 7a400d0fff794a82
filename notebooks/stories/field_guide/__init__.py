"""The field guide in a notebook: its entries as cards, a box to search them, their programs run."""

from notebooks.stories.field_guide.cards import pages
from notebooks.stories.field_guide.programs import lacking, show
from notebooks.stories.field_guide.search import Search
