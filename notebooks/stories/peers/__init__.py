"""Other libraries beside the course's own loaders: the same samples, with the books kept."""

from notebooks.stories.peers.comparison import compare, recorded
from notebooks.stories.peers.course import COURSE
from notebooks.stories.peers.form import LibraryForm
from notebooks.stories.peers.libraries import LIBRARIES
