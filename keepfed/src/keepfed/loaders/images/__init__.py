"""Load photographs from class folders, or from one packed file with several threads."""

from keepfed.loaders.images.crops import IMAGENET_MEAN, IMAGENET_STD, CenterCrop, Crops
from keepfed.loaders.images.jpegs import Jpegs
from keepfed.loaders.images.loader import ImageLoader
from keepfed.loaders.images.packed import PackedImages, pack_images
