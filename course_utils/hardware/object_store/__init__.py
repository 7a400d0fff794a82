"""Emulated object store: a folder served over HTTP by a subprocess."""

from course_utils.hardware.object_store.store import ObjectStore, object_store
