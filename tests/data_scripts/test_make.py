"""Contents of the data sets, and that the same seed gives the same bytes."""

import json
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import awkward as ak
import numpy as np
import pytest
import uproot
from PIL import Image
from tokenizers import Tokenizer

from course_utils.loading.tokens import END, END_TEXT, Corpus
from data_scripts import files, make_collisions, make_events, make_images, make_tokens, make_volumes
from data_scripts.make_volumes import SHAPES, density

SMALL_SHAPES = ((8, 6, 4), (12, 10, 8))
MAKERS = (make_events, make_images, make_volumes, make_tokens)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder with the data sets of size S, named like their modules."""
    folder = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(make_events.COUNTS, "S", 600)
        patch.setitem(SHAPES, "S", SMALL_SHAPES)
        patch.setitem(make_tokens.COUNTS, "S", 20_000)
        patch.setattr(make_tokens, "TRAINED_ON", 100_000)
        for maker in MAKERS:
            assert maker.main(["--size", "S", "--out", str(folder / maker.__name__)]) == 0
        yield folder


@pytest.mark.slow
@pytest.mark.parametrize("maker", MAKERS, ids=["events", "images", "volumes", "tokens"])
def test_same_seed_gives_the_same_bytes_and_force_repairs(
    maker: type[make_events], made: Path, tmp_path: Path
) -> None:
    data, options = tmp_path / "data", ["--size", "S", "--out", str(tmp_path / "data")]
    sums = (made / maker.__name__ / files.CHECKSUMS).read_bytes()
    assert maker.main([*options, "--seed", "2"]) == 0
    assert (data / files.CHECKSUMS).read_bytes() != sums
    assert maker.main([*options, "--seed", "1"]) == 1  # a different data set exists
    assert maker.main([*options, "--force"]) == 0
    assert (data / files.CHECKSUMS).read_bytes() == sums
    assert files.corrupted(data) == []

    written = (data / files.MANIFEST).stat().st_mtime_ns
    assert maker.main(options) == 0
    assert (data / files.MANIFEST).stat().st_mtime_ns == written


def test_events_have_their_size_and_large_sets_omit_single_files(made: Path) -> None:
    folder = made / make_events.__name__
    pulses = np.load(folder / "npy/pulses.npy", mmap_mode="r")
    counts = json.loads((folder / "manifest.json").read_text())["counts"]
    assert counts == {"events": 600, "pulses": len(pulses)}
    assert (folder / "npz/000/000599.npz").is_file()
    assert "npz" in make_events.FORMATS_OF["M"]
    assert "npz" not in make_events.FORMATS_OF["L"]


def test_images_are_square_colour_jpegs_with_rare_classes(made: Path) -> None:
    contents, found = set(), dict.fromkeys(make_images.class_counts(200), 0)
    for path in (made / make_images.__name__).glob("*/*.jpg"):
        with Image.open(path) as image:
            assert (image.format, image.size, image.mode) == ("JPEG", (256, 256), "RGB")
        contents.add(path.read_bytes())
        found[path.parent.name] += 1

    assert len(contents) == 200
    assert found == make_images.class_counts(200)
    for total in (200, 2_000, 20_000):
        counts = make_images.class_counts(total)
        assert (len(counts), sum(counts.values())) == (8, total)
        assert counts["cat"] == 15 * counts["retina"]


def test_photographs_have_about_the_requested_sides(tmp_path: Path) -> None:
    contents: list[set[bytes]] = []
    for folder in (tmp_path / "first", tmp_path / "again"):
        folder.mkdir()
        make_images.cut_sizes(folder, 12, 700, 300)  # wider than most of scikit-image's photographs
        contents.append({path.read_bytes() for path in folder.iterdir()})
    assert contents[0] == contents[1]
    assert len(contents[0]) == 12
    sizes = np.array([Image.open(BytesIO(content)).size for content in contents[0]])
    assert (abs(sizes / (700, 300) - 1) <= 0.16).all()
    assert len(np.unique(sizes, axis=0)) > 6


def test_missing_scikit_image_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("data_scripts.make_images.find_spec", lambda name: None)

    assert make_images.main(["--size", "S", "--out", str(tmp_path / "images")]) == 1
    assert "Run `pip install scikit-image`" in capsys.readouterr().err


def test_density_is_positive_and_clumped_with_mean_one() -> None:
    field = density((32, 32, 32), np.random.default_rng(1))

    assert field.min() > 0
    assert field.mean(dtype=float) == pytest.approx(1)
    assert np.corrcoef(field[1:].ravel(), field[:-1].ravel())[0, 1] > 0.5  # white noise has 0


def test_tokens_have_the_requested_number_and_decode_to_the_text(made: Path) -> None:
    folder = made / make_tokens.__name__
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


def test_collisions_have_the_same_jets_in_both_formats_and_for_the_same_seed(
    tmp_path: Path,
) -> None:
    first, again, other = (tmp_path / name for name in ("first", "again", "other"))
    for folder, seed in ((first, "1"), (again, "1"), (other, "2")):
        assert make_collisions.main(["--size", "S", "--seed", seed, "--out", str(folder)]) == 0
    assert make_collisions.main(["--check", "--out", str(first)]) == 0
    columns: dict[str, float] = {"signal": 0, "background": 0}
    for path in sorted((first / "ttree").glob("*.root")):
        jets = uproot.open(path)["tree"].arrays()
        for place in (first / "rntuple", again / "ttree", again / "rntuple"):
            same = uproot.open(place / path.name)["tree"].arrays()
            assert all(ak.array_equal(jets[name], same[name]) for name in same.fields)
        assert not ak.array_equal(jets, uproot.open(other / "ttree" / path.name)["tree"].arrays())
        kind = path.name.partition("_")[0]
        assert ak.all(jets["label_Hbb"] == (kind == "signal"))
        assert ak.mean(jets["weight"] < 0) == make_collisions.NEGATIVE[kind]
        assert ak.min(jets["jet_nparticles"]) >= 1
        columns[kind] += float(ak.sum(jets["weight"]))
    assert columns == pytest.approx(make_collisions.EXPECTED, rel=1e-4)


def test_tokenizer_decodes_unknown_text() -> None:
    tokenizer = make_tokens.train(["only these words"])
    text = "\tder Überschuß\r\n = 5 µs, 日本 🙂"
    assert tokenizer.decode(tokenizer.encode(text).ids) == text
    assert tokenizer.encode(END_TEXT).ids == [END]


def test_too_little_text_suggests_a_smaller_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(make_tokens, "TRAINED_ON", 10_000)
    monkeypatch.setattr(make_tokens, "_code", lambda rng: iter(["a = 1\n" * 100]))

    assert make_tokens.main(["--size", "L", "--out", str(tmp_path / "tokens")]) == 1
    error = capsys.readouterr().err
    assert "The code on this machine has" in error
    assert "Choose a smaller --size" in error
    assert not (tmp_path / "tokens").exists()
