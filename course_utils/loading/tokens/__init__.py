"""Token corpora in uint16: cut into windows, and blended in exact proportions."""

from course_utils.loading.tokens.blend import Blend
from course_utils.loading.tokens.corpus import END, END_TEXT, Corpus
from course_utils.loading.tokens.windows import PackedWindows
