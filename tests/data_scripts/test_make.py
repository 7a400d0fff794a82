import json
from pathlib import Path

import awkward as ak
import numpy as np
import pytest
import uproot
from PIL import Image
from tokenizers import Tokenizer

from course_utils.loading.tokens import END, END_TEXT, Corpus
from data_scripts import files, make_collisions, make_events, make_images, make_tokens, make_volumes
from data_scripts.make_volumes import density


@pytest.mark.slow
def test_same_seed_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(make_events.COUNTS, "S", 600)
    monkeypatch.setitem(make_volumes.SHAPES, "S", ((8, 6, 4), (12, 10, 8)))
    monkeypatch.setitem(make_tokens.COUNTS, "S", 20_000)
    monkeypatch.setattr(make_tokens, "TRAINED_ON", 100_000)
    for maker in (make_events, make_images, make_volumes, make_tokens):
        data = tmp_path / maker.__name__
        options = ["--size", "S", "--out", str(data)]
        assert maker.main(options) == 0
        sums = (data / files.CHECKSUMS).read_bytes()
        assert maker.main([*options, "--seed", "2"]) == 1  # a different data set exists
        assert maker.main([*options, "--seed", "2", "--force"]) == 0
        assert (data / files.CHECKSUMS).read_bytes() != sums
        assert maker.main([*options, "--force"]) == 0
        assert (data / files.CHECKSUMS).read_bytes() == sums
        assert files.corrupted(data) == []
        written = (data / files.MANIFEST).stat().st_mtime_ns
        assert maker.main(options) == 0
        assert (data / files.MANIFEST).stat().st_mtime_ns == written
    events, tokens = (tmp_path / maker.__name__ for maker in (make_events, make_tokens))
    counts = json.loads((events / "manifest.json").read_text())["counts"]
    pulses = np.load(events / "npy/pulses.npy", mmap_mode="r")
    assert counts == {"events": 600, "pulses": len(pulses)}
    assert (events / "npz/000/000599.npz").is_file()
    check_images(tmp_path / make_images.__name__)
    check_tokens(tokens)


def test_every_block_of_events_has_its_own_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_events, "simulate", lambda block, runs, rng: rng.random())
    table = np.zeros(2 * make_events.EVENTS_AT_ONCE, [("event_id", int)])
    first, second = make_events._simulated(table, None, 1)  # type: ignore[arg-type]
    assert first != second


def check_images(folder: Path) -> None:
    contents, counts = set(), dict.fromkeys(make_images.class_counts(200), 0)
    for path in folder.glob("*/*.jpg"):
        with Image.open(path) as image:
            assert (image.format, image.size, image.mode) == ("JPEG", (256, 256), "RGB")
        contents.add(path.read_bytes())
        counts[path.parent.name] += 1
    assert len(contents) == 200
    assert counts == make_images.class_counts(200)
    assert (len(counts), sum(counts.values())) == (8, 200)
    assert counts["cat"] == 15 * counts["retina"]


def check_tokens(folder: Path) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    counts = json.loads((folder / "manifest.json").read_text())["counts"]
    assert sum(count["tokens"] for count in counts.values()) == 20_000
    for name, count in counts.items():
        corpus = Corpus(folder, name)
        assert {"tokens": len(corpus.tokens), "documents": len(corpus)} == count
        assert corpus.tokens.dtype == np.uint16
        assert corpus.tokens.max() < tokenizer.get_vocab_size() <= make_tokens.VOCABULARY
        assert np.flatnonzero(corpus.tokens == END).tolist() == (corpus.offsets[1:] - 1).tolist()
        text = tokenizer.decode(corpus[0].tolist(), skip_special_tokens=False)
        assert text.endswith(END_TEXT)
        if len(corpus) > 1:  # the last document is truncated
            assert tokenizer.encode(text).ids == corpus[0].tolist()
    unknown = "\tder Überschuß\r\n = 5 µs, 日本 🙂"
    assert tokenizer.decode(tokenizer.encode(unknown).ids) == unknown


def test_missing_sources_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("data_scripts.make_images.find_spec", lambda name: None)
    assert make_images.main(["--size", "S", "--out", str(tmp_path / "images")]) == 1
    assert "Run `pip install scikit-image`" in capsys.readouterr().err
    monkeypatch.setattr(make_tokens, "TRAINED_ON", 10_000)
    monkeypatch.setattr(make_tokens, "_code", lambda rng: iter(["a = 1\n" * 100]))
    assert make_tokens.main(["--size", "L", "--out", str(tmp_path / "tokens")]) == 1
    assert "Choose a smaller --size" in capsys.readouterr().err
    assert not (tmp_path / "tokens").exists()


def test_density_is_positive_and_clumped_with_mean_one() -> None:
    field = density((32, 32, 32), np.random.default_rng(1))
    assert field.min() > 0
    assert field.mean(dtype=float) == pytest.approx(1)
    assert np.corrcoef(field[1:].ravel(), field[:-1].ravel())[0, 1] > 0.5  # white noise has 0


def test_collisions_have_equal_jets_in_both_formats_and_for_the_same_seed(tmp_path: Path) -> None:
    first, again = tmp_path / "first", tmp_path / "again"
    for folder in (first, again):
        assert make_collisions.main(["--size", "S", "--out", str(folder)]) == 0
    assert make_collisions.main(["--check", "--out", str(first)]) == 0
    weights: dict[str, float] = {"signal": 0, "background": 0}
    for path in sorted((first / "ttree").glob("*.root")):
        jets = uproot.open(path)["tree"].arrays()
        for place in (first / "rntuple", again / "ttree"):
            same = uproot.open(place / path.name)["tree"].arrays()
            assert all(ak.array_equal(jets[name], same[name]) for name in same.fields)
        kind = path.name.partition("_")[0]
        assert ak.all(jets["label_Hbb"] == (kind == "signal"))
        assert ak.mean(jets["weight"] < 0) == make_collisions.NEGATIVE[kind]
        assert ak.min(jets["jet_nparticles"]) >= 1
        weights[kind] += float(ak.sum(jets["weight"]))
    assert weights == pytest.approx(make_collisions.EXPECTED, rel=1e-4)
