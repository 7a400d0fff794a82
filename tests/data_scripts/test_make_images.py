import importlib.util
from pathlib import Path

import pytest
from PIL import Image

from data_scripts import files, make_images


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "images"
    assert make_images.main(["--size", "S", "--out", str(folder)]) == 0
    return folder


def test_every_class_has_its_share(folder: Path) -> None:
    found = {path.name: len(list(path.glob("*.jpg"))) for path in folder.iterdir() if path.is_dir()}

    assert found == make_images.class_counts(200)
    assert sum(found.values()) == 200
    assert len(found) == 8


@pytest.mark.parametrize("total", [200, 2_000, 20_000])
def test_some_classes_are_many_times_rarer(total: int) -> None:
    counts = make_images.class_counts(total)

    assert sum(counts.values()) == total
    assert counts["cat"] == 15 * counts["retina"]


def test_pictures_are_square_colour_jpegs_that_differ(folder: Path) -> None:
    contents = set()
    for path in folder.glob("*/*.jpg"):
        with Image.open(path) as image:
            assert (image.format, image.size, image.mode) == ("JPEG", (256, 256), "RGB")
        contents.add(path.read_bytes())

    assert len(contents) == 200


def test_the_same_seed_gives_the_same_bytes_and_another_gives_others(
    folder: Path, tmp_path: Path
) -> None:
    checksums = (folder / files.CHECKSUMS).read_bytes()
    for seed, same in (("1", True), ("2", False)):
        out = tmp_path / seed
        assert make_images.main(["--size", "S", "--seed", seed, "--out", str(out)]) == 0
        assert ((out / files.CHECKSUMS).read_bytes() == checksums) is same


def test_without_scikit_image_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def find_spec(name: str) -> None:
        return None

    monkeypatch.setattr(make_images, "find_spec", find_spec)

    assert make_images.main(["--size", "S", "--out", str(tmp_path / "images")]) == 1
    assert "run `pip install scikit-image`" in capsys.readouterr().err


def test_the_photographs_are_files_of_the_installed_package() -> None:
    package = importlib.util.find_spec("skimage")

    assert package is not None
    assert package.origin is not None
    data = Path(package.origin).parent / "data"
    assert all((data / name).is_file() for name in make_images.PHOTOGRAPHS.values())
