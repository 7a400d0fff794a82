"""Images of the course: augmentation of photographs, and volumes of a toy universe."""

from course_utils.loading.images.augment import Augment, normalize, per_sample
from course_utils.loading.images.volumes import Volumes
