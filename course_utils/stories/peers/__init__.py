"""Compare other libraries with the course's loaders on the same samples."""

from course_utils.stories.peers.comparison import compare, recorded
from course_utils.stories.peers.course import COURSE
from course_utils.stories.peers.form import LibraryForm
from course_utils.stories.peers.libraries import LIBRARIES
