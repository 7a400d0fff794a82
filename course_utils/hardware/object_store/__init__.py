"""A folder served over HTTP as an object store would, from a process of its own."""

from course_utils.hardware.object_store.server import address, serve
from course_utils.hardware.object_store.store import ObjectStore, object_store
