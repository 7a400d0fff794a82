import http.server
import threading

import pytest

from docs import links


def test_only_a_missing_page_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(int(self.path[1:]))
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        root = f"http://127.0.0.1:{server.server_port}"
        found = {f"{root}/{code}": [f"{code}.md"] for code in (200, 403, 404)}
        monkeypatch.setattr(links, "links", lambda: found)
        assert links.main([]) == 1
        said = capsys.readouterr().out.splitlines()
        assert said[0] == f"unknown: {root}/403 (403 Forbidden), in 403.md"
        assert said[1] == f"BROKEN: {root}/404 (404 Not Found), in 404.md"
        assert said[2] == "3 links: 1 are broken, and 1 could not be checked."
        del found[f"{root}/404"]
        assert links.main([]) == 0
        server.shutdown()
    monkeypatch.setattr(links, "links", lambda: {root: ["a.md"]})
    assert links.main([]) == 1, "no link answers, so nothing was checked"
