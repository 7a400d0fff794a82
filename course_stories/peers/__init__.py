"""Compare other libraries with the course's loaders on the same samples."""

from course_stories.peers.comparison import compare, recorded
from course_stories.peers.course import COURSE
from course_stories.peers.form import LibraryForm
from course_stories.peers.libraries import LIBRARIES
