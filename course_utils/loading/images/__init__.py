"""Augmentation of photographs."""

from course_utils.loading.images.augment import Augment, normalize, per_sample
