"""Write a file format of events on a Ray cluster, with one task per part.

If a process or a node dies, Ray runs its task again. The first attempt may have written any part of
its output, and a node that only lost its connection may still be writing. Each task therefore
writes to a unique temporary name, and renames the complete part. A part that is written several
times exists once, with the same bytes.
"""

import os
import socket
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
def ray_engine(address: str | None, workers: int | None) -> Iterator[Engine]:
    """Yield a function that writes formats on a cluster, and disconnect at the end.

    Args:
        address: Address of a running cluster, such as "node1:6379". None: RAY_ADDRESS, otherwise a
            cluster running on this machine, otherwise a new one that ends with this process.
        workers: Always start a cluster here, with this number of parallel tasks.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # otherwise Ray sends usage statistics
    try:
        import ray
    except ImportError as error:
        raise CourseError(
            'Ray is not installed. Run `pip install -e keepfed -e ".[cluster]"` in the folder of '
            "the course, or omit --engine ray."
        ) from error
    _need_answer(address)
    # Workers must run this code, not a different version installed on their node.
    code = {
        "py_modules": [
            str(REPO / package)
            for package in ("course_utils", "data_scripts", "keepfed/src/keepfed")
        ]
    }
    try:
        ray.init(
            address or ("local" if workers else None),
            num_cpus=workers,
            runtime_env=code,
            include_dashboard=False,
            logging_level="warning",
        )
    except Exception as error:  # Ray raises plain Exception on busy machines
        raise CourseError(f"Ray could not join or start a cluster: {error}") from error
    try:
        yield _write_on_ray
    finally:
        ray.shutdown()


def _need_answer(address: str | None) -> None:
    """Raise a CourseError if nothing answers at host:port; Ray would retry for minutes."""
    host, colon, port = (address or "").rpartition(":")
    if not colon or "/" in host:
        return  # "auto", "local" or "ray://...", which Ray resolves
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, ValueError) as error:
        raise CourseError(
            f"No Ray cluster answers at {address} ({error}). Start one there with `ray start "
            "--head`, or omit the address to start one here."
        ) from error


def _write_on_ray(folder: Path, name: str, path: Path) -> None:
    import ray

    how = FORMATS[name].write
    if not isinstance(how, Parts):
        print(f"{name} is a single file, so only one process can write it. It is written here.")
        return write_here(folder, name, path)
    path.mkdir()
    task, count = ray.remote(_part_task), len(EventArrays.load(folder).slices(how.size))
    parts = [task.remote(folder.resolve(), name, path.resolve(), n) for n in range(count)]
    try:
        done = [ray.get(part) for part in tqdm(parts, desc=name, unit="part", disable=None)]
    except ray.exceptions.RayTaskError as error:
        if not isinstance(error.cause, OSError):
            raise
        raise _not_shared(folder, error.cause) from error
    except ray.exceptions.RayError as error:
        raise CourseError(
            f"Ray could not write a part of {name}: {error}. Check the memory of its nodes, and "
            "run the command again."
        ) from error
    files.sweep(path)  # remove the leftovers of killed tasks
    if missing := [how.name(n) for n in range(count) if not (path / how.name(n)).exists()]:
        raise _not_shared(folder, f"{missing[0]} is missing here")
    if how.finish:
        how.finish(path, [found for found, _ in done])
    workers, nodes = {who for _, who in done}, {node for _, (node, _) in done}
    print(f"{name}: {count} parts; workers: {len(workers)}, nodes: {len(nodes)}.")


def _part_task(folder: Path, name: str, path: Path, number: int) -> tuple[Any, tuple[str, int]]:
    """Write one part in a worker, and return the input of `finish`, and the node and process."""
    import ray

    found = write_part(folder, name, path, number)
    return found, (ray.get_runtime_context().get_node_id(), os.getpid())


def write_part(folder: Path, name: str, path: Path, number: int) -> Any:
    """Write part `number` of a format into the folder `path` atomically; may run repeatedly."""
    how, events = FORMATS[name].write, EventArrays.load(folder)
    assert isinstance(how, Parts)
    target = path / how.name(number)
    own = path / f".{target.name}.{uuid4().hex}.unfinished"
    found = how.write(events, events.slices(how.size)[number], own)
    try:
        own.replace(target)
    except OSError:
        if not target.exists():  # an abandoned task may have written this part already
            raise
    return found


def _not_shared(folder: Path, problem: object) -> CourseError:
    return CourseError(
        f"A worker could not write a part ({problem}). Put {folder} on a file system that all "
        "nodes of the cluster can access under this path, and run the command again."
    )
