from pathlib import Path

from docs.book.links import findings


def test_links_must_lead_somewhere_and_nothing_is_loaded_from_outside(tmp_path: Path) -> None:
    (tmp_path / "other.html").write_text('<h2 id="here">', "utf-8")
    good = '<a href="other.html#here"><a href="#top"><a href="https://docs.ray.io"><p id="top">'
    (tmp_path / "good.html").write_text(good, "utf-8")
    assert list(findings(tmp_path)) == []
    bad = '<a href="gone.html"><a href="other.html#gone"><script src="https://cdn.example/x.js">'
    (tmp_path / "bad.html").write_text(bad, "utf-8")
    assert list(findings(tmp_path)) == [
        "bad.html loads https://cdn.example/x.js from the network.",
        "bad.html links to gone.html, which does not exist.",
        "bad.html links to other.html#gone, but that page has no such heading.",
    ]
