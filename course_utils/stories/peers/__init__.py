"""Compare other libraries with the course's loaders on the same samples."""

from course_utils.stories.peers.comparison import compare, recorded
from course_utils.stories.peers.separate import try_libraries
