"""Compare file formats and codecs on this disk and on emulated storage."""

from course_utils.stories.formats_compared.compression import BANDWIDTHS, compare_codecs
from course_utils.stories.formats_compared.formats import VARIANTS, compare_formats
