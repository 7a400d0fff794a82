"""Pictures: photographs in class folders, volumes of a toy universe, and their augmentation."""

from course_utils.loading.images.augment import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    Augment,
    normalise,
    per_sample,
)
from course_utils.loading.images.crops import CentreCrop, Crops
from course_utils.loading.images.jpegs import Jpegs
from course_utils.loading.images.loader import ImageLoader
from course_utils.loading.images.packed import PackedImages, pack_images
from course_utils.loading.images.volumes import Volumes
