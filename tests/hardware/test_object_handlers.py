"""What is answered when a file goes between two looks at it: handlers in this process."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tornado.httpclient import AsyncHTTPClient, HTTPResponse
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets

from course_utils.hardware.object_store.folder import MISSING, ObjectFolder
from course_utils.hardware.object_store.handlers import ADDRESS, ServedStore, application
from course_utils.hardware.object_store.limits import NO_LIMITS, Limits


class Vanishing(ObjectFolder):
    """Whatever is found is gone right after so many looks."""

    looks = 1

    def find(self, name: str) -> Path:
        found = super().find(name)
        self.looks -= 1
        if not self.looks:
            found.rmdir() if found.is_dir() else found.unlink()
        return found


async def ask(folder: ObjectFolder, path: str, method: str) -> HTTPResponse:
    server = HTTPServer(application(ServedStore(folder, "right", Limits(NO_LIMITS), None)))
    sockets = bind_sockets(0, ADDRESS)
    server.add_sockets(sockets)
    try:
        return await AsyncHTTPClient().fetch(
            f"http://{ADDRESS}:{sockets[0].getsockname()[1]}/{path}?token=right",
            method=method,
            raise_error=False,
        )
    finally:
        server.stop()
        await server.close_all_connections()


@pytest.mark.parametrize("name", ["a.tar", "empty", "sub"])
@pytest.mark.parametrize(("method", "looks"), [("HEAD", 1), ("GET", 2), ("GET", 3)])
def test_what_vanishes_after_it_was_found_is_missing(
    tmp_path: Path, name: str, method: str, looks: int
) -> None:
    (tmp_path / "a.tar").write_bytes(b"some bytes")
    (tmp_path / "empty").touch()
    (tmp_path / "sub").mkdir()
    folder = Vanishing(tmp_path)
    folder.looks = looks
    with ThreadPoolExecutor(1) as pool:  # in this thread a browser test may have left a loop
        answer = pool.submit(lambda: asyncio.run(ask(folder, name, method))).result()
    if looks == 3 and name != "sub":  # a file is looked for twice only
        assert answer.code == 200
        return
    assert answer.code == 404
    assert answer.body == (b"" if method == "HEAD" else f"{MISSING}\n".encode())
