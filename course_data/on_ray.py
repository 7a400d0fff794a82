"""Write events in a format on a Ray cluster: each part is a task, for whichever node is free.

Ray runs a task again when its process or its node dies, and then nobody knows how far it had come;
a node that was only cut off may still be at it. So a task does not write where the part belongs. It
writes under a name that no other has, and renames what is whole: however often a part is written,
it is there once, and has the same bytes.
"""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from tqdm import tqdm

from course_data import files
from course_utils.errors import CourseError
from course_utils.loading.events import FORMATS, EventArrays, Parts
from course_utils.paths import REPO

Engine = Callable[[Path, str, Path], None]  # a folder of events, a format, where to write it


def write_here(folder: Path, name: str, path: Path) -> None:
    """Write a format in this process."""
    FORMATS[name].write(EventArrays.load(folder), path)


@contextmanager
def ray_engine(address: str | None, workers: int | None) -> Iterator[Engine]:
    """Give what writes formats on a cluster, and let go of it at the end.

    Args:
        address: of a cluster that runs, such as "node1:6379"; None: RAY_ADDRESS, or one that runs
            on this machine, or else one that is started here and ends with this process.
        workers: start one here in any case, which runs so many tasks at a time.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # else Ray reports to its makers
    try:
        import ray
    except ImportError as error:
        raise CourseError(
            'Ray is not installed; run `python -m pip install -e ".[cluster]"` in the course\'s '
            "folder, or leave --engine ray out."
        ) from error
    _need_answer(address)
    # the workers shall run this code, and not another version that their node may have
    code = {
        "py_modules": [
            str(REPO / package) for package in ("course_utils", "course_data", "keepfed")
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
    except Exception as error:  # on a busy machine Ray raises just that, after half a minute
        raise CourseError(f"Ray could not join or start a cluster: {error}") from error
    try:
        yield _write_on_ray
    finally:
        ray.shutdown()


def _need_answer(address: str | None) -> None:
    """Raise a CourseError where nobody answers at host:port; Ray itself would try for minutes."""
    host, colon, port = (address or "").rpartition(":")
    if not colon or "/" in host:
        return  # "auto", "local" or "ray://...", for Ray to look up
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, ValueError) as error:
        raise CourseError(
            f"No Ray cluster answers at {address} ({error}); start one there with `ray start "
            "--head`, or leave the address out to start one here."
        ) from error


def _write_on_ray(folder: Path, name: str, path: Path) -> None:
    import ray

    how = FORMATS[name].write
    if not isinstance(how, Parts):
        print(f"{name} is a single file, which can have one writer only: it is written here.")
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
            f"Ray gave up on a part of {name}: {error}. See how much memory its nodes have, and "
            "run again."
        ) from error
    files.sweep(path)  # what killed tasks left
    if missing := [how.name(n) for n in range(count) if not (path / how.name(n)).exists()]:
        raise _not_shared(folder, f"no {missing[0]} has arrived here")
    if how.finish:
        how.finish(path, [found for found, _ in done])
    workers, nodes = {who for _, who in done}, {node for _, (node, _) in done}
    print(f"{name}: {count} parts; workers: {len(workers)}, nodes: {len(nodes)}.")


def _part_task(folder: Path, name: str, path: Path, number: int) -> tuple[Any, tuple[str, int]]:
    """Write one part in a worker; return what `finish` has to know, and which node and process."""
    import ray

    found = write_part(folder, name, path, number)
    return found, (ray.get_runtime_context().get_node_id(), os.getpid())


def write_part(folder: Path, name: str, path: Path, number: int) -> Any:
    """Write part `number` of a format into the folder `path`: whole, however often, by whomever."""
    how, events = FORMATS[name].write, EventArrays.load(folder)
    assert isinstance(how, Parts)
    target = path / how.name(number)
    own = path / f".{target.name}.{uuid4().hex}.unfinished"
    found = how.write(events, events.slices(how.size)[number], own)
    try:
        own.replace(target)
    except OSError:
        if not target.exists():  # else this part was written before, by a task that Ray gave up
            raise
    return found


def _not_shared(folder: Path, problem: object) -> CourseError:
    return CourseError(
        f"A worker could not write a part ({problem}); put {folder} on a file system that all "
        "nodes of the cluster find under this path, and run again."
    )
