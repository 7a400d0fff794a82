import textwrap
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode

import notebooks.build
from docs.publish import Address, chosen
from notebooks import build as builder


def _read(tmp_path: Path, *cells: str, name: str = "90_a.py") -> NotebookNode:
    path = tmp_path / name
    path.write_text("\n\n".join(f"# %%{textwrap.dedent(cell)}" for cell in cells), "utf-8")
    return builder.read_source(path)


def _sources(notebook: NotebookNode) -> list[str]:
    return [cell.source for cell in notebook.cells]


def _ids(notebook: NotebookNode) -> list[str]:
    return [cell.id for cell in notebook.cells]


BLOCK = '''
def pad(samples):
    """Pad."""
    ### BEGIN SOLUTION
    # Longest first.
    longest = max(samples)

    return longest
    ### END SOLUTION
'''


def test_answers_become_stubs_and_solutions_lose_their_marks(tmp_path: Path) -> None:
    notebook = _read(tmp_path, BLOCK)
    stub = 'def pad(samples):\n    """Pad."""\n    ...  # your code, about 2 lines'
    assert _sources(builder.for_learner(notebook)) == [stub]
    (source,) = _sources(builder.with_solutions(notebook))
    assert "SOLUTION" not in source
    assert source.endswith("    longest = max(samples)\n\n    return longest")
    assert _ids(builder.for_learner(notebook)) == _ids(builder.with_solutions(notebook))
    for line, stub in (
        ("answer = 23  ### SOLUTION", "answer = ...  # your answer"),
        ("answer: int = f(a, b=2)  ### SOLUTION", "answer: int = ...  # your answer"),
        ("    num_workers=2,  ### SOLUTION", "    num_workers=...,  # your answer"),
        ("    return x == 2  ### SOLUTION", "    return ...  # your answer"),
        ("ok = a == b  ### SOLUTION", "ok = ...  # your answer"),
    ):
        notebook = _read(tmp_path, f"\n(\n{line}\n)")
        assert _sources(builder.for_learner(notebook)) == [f"(\n{stub}\n)"]
        assert _sources(builder.with_solutions(notebook)) == [f"(\n{line.partition('  #')[0]}\n)"]
    for cell in "### BEGIN SOLUTION\nx = 1", "x = 1\n### END SOLUTION", "f(x)  ### SOLUTION":
        _read(tmp_path, f"\n\n{cell}")
        with pytest.raises(builder.BuildError, match=r"90_a\.py: the mark in .*SOLUTION"):
            builder.build(tmp_path, tmp_path)


def test_learner_version_omits_solutions_and_instructor_notes(tmp_path: Path) -> None:
    solution, note = ' tags=["solution"]\nx = 1', ' [markdown] tags=["instructor"]\n# Say this.'
    notebook = _read(tmp_path, "\nshown = 1", solution, note)
    assert _sources(builder.for_learner(notebook)) == ["shown = 1"]
    assert len(builder.with_solutions(notebook).cells) == 3
    notebook = _read(tmp_path, "\n# %%worker_module mine\nx = 1")
    assert _sources(builder.for_learner(notebook)) == ["%%worker_module mine\nx = 1"]


def test_cell_id_depends_only_on_its_cell(tmp_path: Path) -> None:
    before = _read(tmp_path, "\na = 1", "\nb = 1", "\nb = 1")
    after = _read(tmp_path, "\nnew = 0", "\na = 2", "\nb = 1", "\nb = 1")
    assert _ids(before)[1:] == _ids(after)[2:]
    assert len(set(_ids(before))) == 3


def test_minutes_are_counted_and_optional_parts_are_marked(tmp_path: Path) -> None:
    prose = "word " * 260
    _read(
        tmp_path,
        " [markdown]\n# # 90 · A title\n#\n# {minutes}",
        f" [markdown]\n# {prose}<details>{prose}</details>",
        "\n" + "x = 1\n" * 14,
        " [markdown]\n# ### Exercise 90.1 · 5 min · ●○○",
        " [markdown]\n# # Extra",
        " [markdown]\n# ### Exercise 90.2 · 20 min · ●●●",
    )
    (text, *_) = builder.build(tmp_path, tmp_path).values()
    cells = [cell for cell in nbformat.reads(text, 4).cells if "colab" not in builder.tags(cell)]
    assert cells[0].source.endswith("4 to read + 5 for the exercises; what is extra takes 21")
    assert ["extra" in builder.tags(cell) for cell in cells] == [False] * 4 + [True] * 2


def test_appendix_has_letter_and_follows_the_notebooks(tmp_path: Path) -> None:
    for name in ("B_more.py", "A_words.py", "10_a.py", "notes.py"):
        _read(tmp_path, " [markdown]\n# # A title\n#\n# {minutes}", name=name)
    found = builder.sources(tmp_path)
    assert [path.name for path in found] == ["10_a.py", "A_words.py", "B_more.py"]
    assert [builder.number(path) for path in found] == ["10", "A", "B"]
    built = builder.build(tmp_path, tmp_path)
    for folder in (tmp_path, tmp_path / "solutions"):
        cell, *others = nbformat.reads(built[folder / "A_words.ipynb"], 4).cells
        assert cell.source.endswith("1 to read")
        assert [builder.tags(other) for other in others] in ([], [["colab"]])


def test_cell_that_installs_on_colab_needs_an_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _read(tmp_path, " [markdown]\n# # A title\n#\n# {minutes}", name="A_words.py")
    monkeypatch.setattr(notebooks.build, "address", Address)
    (text, solved) = builder.build(tmp_path, tmp_path).values()
    assert len(nbformat.reads(text, 4).cells) == 1
    monkeypatch.setattr(notebooks.build, "address", lambda: chosen("example.org/x/y"))
    (text, still_solved) = builder.build(tmp_path, tmp_path).values()
    _, on_colab = nbformat.reads(text, 4).cells
    assert builder.tags(on_colab) == ["colab"]
    assert still_solved == solved
    assert '"fast-data-loaders[colab,later] @ git+https://example.org/x/y"' in on_colab.source


def test_build_is_reproducible_and_check_reports_what_is_outdated(
    sample: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--source", str(sample), "--out", str(tmp_path)]
    assert builder.main(arguments) == 0
    first = {path: path.read_bytes() for path in tmp_path.rglob("*.ipynb")}
    assert len(first) == 2
    solved = tmp_path / "solutions" / "90_try_the_build.ipynb"
    old = tmp_path / "91_old.ipynb"
    for break_it, name in (
        (lambda: solved.write_text(solved.read_text("utf-8").replace("Squares", "Cubes")), solved),
        (solved.unlink, solved),
        (lambda: old.write_text("{}", "utf-8"), old),
    ):
        assert builder.main([*arguments, "--check"]) == 0
        break_it()
        assert builder.main([*arguments, "--check"]) == 1
        (complaint,) = capsys.readouterr().err.splitlines()
        assert name.name in complaint
        assert builder.main(arguments) == 0
        old.unlink(missing_ok=True)
        assert {path: path.read_bytes() for path in tmp_path.rglob("*.ipynb")} == first


@pytest.mark.slow
def test_notebooks_are_up_to_date() -> None:
    assert builder.main(["--check"]) == 0, f"run `make notebooks` in {builder.HERE.parent}"


@pytest.mark.slow
def test_stored_cell_contains_picture_without_kernel(tmp_path: Path) -> None:
    cell = "import course_utils as cu\ncu.explorer()"
    (tmp_path / "90_a.py").write_text(f'# %%\n1\n\n# %% tags=["stored"]\n{cell}\n', "utf-8")
    learner, solved = builder.build(tmp_path, tmp_path).values()
    (shown,) = (c for c in nbformat.reads(learner, 4).cells if "stored" in builder.tags(c))
    assert "mountAll()" in shown.outputs[0].data["text/html"]
    assert all(not c.get("outputs") for c in nbformat.reads(solved, 4).cells)
