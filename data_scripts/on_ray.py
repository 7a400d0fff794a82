"""Write a file format of events on a Ray cluster, with one task per part.

If a process or a node dies, Ray runs its task again. The first attempt may have written any part of
its output, and a node that only lost its connection may still be writing. Each task therefore
writes to a unique temporary name, and renames the complete part. A part that is written several
times exists once, with the same bytes.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from tqdm import tqdm

from course_utils.errors import CourseError
from course_utils.loading.events import FORMATS, EventArrays, Parts
from course_utils.paths import REPO
from data_scripts import files

Engine = Callable[[Path, str, Path], None]  # (folder of events, format, path to write to)


def write_here(folder: Path, name: str, path: Path) -> None:
    """Write a format in this process."""
    FORMATS[name].write(EventArrays.load(folder), path)


@contextmanager
def ray_engine() -> Iterator[Engine]:
    """Yield a function that writes formats on a cluster, and disconnect at the end.

    The cluster is that of RAY_ADDRESS, such as "node1:6379", otherwise one that runs on this
    machine, otherwise a new one that ends with this process.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # otherwise Ray sends usage statistics
    try:
        import ray
    except ImportError as error:
        raise CourseError(
            'Ray is not installed. Run `pip install -e keepfed -e ".[cluster]"` in the folder of '
            "the course, or omit --engine ray."
        ) from error
    # Workers must run this code, not a different version installed on their node.
    packages = ("course_utils", "data_scripts", "keepfed/src/keepfed")
    code = {"py_modules": [str(REPO / package) for package in packages]}
    try:
        ray.init(runtime_env=code, include_dashboard=False, logging_level="warning")
    except Exception as error:  # Ray raises plain Exception on busy machines
        raise CourseError(
            f"Ray could not join or start a cluster: {error}. Start one with `ray start --head`, "
            "and name it in RAY_ADDRESS."
        ) from error
    try:
        yield _write_on_ray
    finally:
        ray.shutdown()


def _write_on_ray(folder: Path, name: str, path: Path) -> None:
    import ray

    layout = FORMATS[name].write
    if not isinstance(layout, Parts):
        print(f"{name} is a single file, so only one process can write it. It is written here.")
        return write_here(folder, name, path)
    path.mkdir()
    task, count = ray.remote(write_part), len(EventArrays.load(folder).slices(layout.size))
    parts = [task.remote(folder.resolve(), name, path.resolve(), part) for part in range(count)]
    try:
        results = [ray.get(part) for part in tqdm(parts, desc=name, unit="part", disable=None)]
    except ray.exceptions.RayError as error:
        raise CourseError(
            f"Ray could not write a part of {name}: {error}. Put {folder} on a file system that "
            "all nodes can access under this path, check their memory, and run the command again."
        ) from error
    files.sweep(path)  # remove the leftovers of killed tasks
    if layout.finish:
        layout.finish(path, results)


def write_part(folder: Path, name: str, path: Path, number: int) -> Any:
    """Write part `number` of a format into the folder `path` atomically; may run repeatedly."""
    layout, events = FORMATS[name].write, EventArrays.load(folder)
    assert isinstance(layout, Parts)
    target = path / layout.name(number)
    partial = path / f".{target.name}.{uuid4().hex}.unfinished"
    result = layout.write(events, events.slices(layout.size)[number], partial)
    try:
        partial.replace(target)
    except OSError:
        if not target.exists():  # an abandoned task may have written this part already
            raise
    return result
