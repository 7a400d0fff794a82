"""Requests to our servers exactly as they are written, because other clients normalize them."""

import socket
from http.client import HTTPConnection
from urllib.parse import urlsplit


def ask(
    url: str, path: str, *, method: str = "GET", token: str = "", body: bytes = b"", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """Send a request, and return status, headers and body of the answer."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if token:
        sent = {"Authorization": f"Bearer {token}", **sent}
    if body:
        sent = {"Content-Length": str(len(body)), **sent}
    connection = HTTPConnection(urlsplit(url).netloc, timeout=10)
    try:
        connection.putrequest(method, path, skip_host="Host" in sent)
        for name, value in sent.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def raw(url: str, request: bytes, *, hang_up: bool = False) -> bytes:
    """Send bytes, perhaps hang up, and return everything until the connection closes."""
    address = urlsplit(url)
    with socket.create_connection((address.hostname or "", address.port or 0), 10) as line:
        line.sendall(request)
        if hang_up:
            line.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: line.recv(2**16), b""))
