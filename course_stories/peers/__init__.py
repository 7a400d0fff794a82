"""Other libraries beside the course's own loaders: the same samples, with the books kept."""

from course_stories.peers.comparison import compare, recorded
from course_stories.peers.course import COURSE
from course_stories.peers.form import LibraryForm
from course_stories.peers.libraries import LIBRARIES
