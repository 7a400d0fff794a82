"""Photographs augmented in the workers or on the device: the loop, its times and its figures."""

from course_utils.stories.augmenting.loops import (
    copy_ms,
    load_ms,
    pace_ms,
    photo_loader,
    steady,
    train_epoch,
)
from course_utils.stories.augmenting.pictures import bars, places, show
