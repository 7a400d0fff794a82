from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from course_utils.teaching.exercise import VERDICT_MIME
from docs.book.exercises import ELSEWHERE
from docs.book.pages import SOLUTION, VERDICT, page


def shown(html: str, **more: object) -> NotebookNode:
    return new_output("display_data", {"text/html": html, **more})


def made_of(*solved: NotebookNode, learner: list[NotebookNode] | None = None) -> NotebookNode:
    cells = [new_markdown_cell("# 07 · Try"), *solved]
    return page(new_notebook(cells=cells), new_notebook(cells=learner or cells))


def test_an_exercise_is_shown_as_the_learner_has_it_and_its_solution_folded() -> None:
    solved = new_code_cell("answer = 42", id="a", outputs=[shown("Right", **{VERDICT_MIME: {}})])
    _, stub, solution = made_of(solved, learner=[new_code_cell("answer = ...", id="a")]).cells
    assert stub.source == "```ipython3\nanswer = ...\n```"
    assert solution.source == "answer = 42"
    assert solution.metadata["tags"] == ["hide-cell"]
    assert solution.metadata["mystnb"]["code_prompt_show"].startswith(SOLUTION)
    assert VERDICT_MIME not in solution.outputs[0].data


def test_cells_of_the_solution_are_folded_and_so_is_what_a_check_says() -> None:
    tagged = {"tags": ["solution"]}
    code, text = new_code_cell("x = 1", metadata=tagged), new_markdown_cell("So.", metadata=tagged)
    check = new_code_cell('cu.check("07.1")', outputs=[shown("Right", **{VERDICT_MIME: {}})])
    _, code, text, line, check = made_of(code, text, check).cells
    assert line.source == ELSEWHERE
    assert "hide-cell" in code.metadata["tags"]
    assert text.source.startswith(f"<details><summary>{SOLUTION}</summary>")
    assert check.metadata["tags"] == ["hide-output"]
    assert check.metadata["mystnb"]["code_prompt_show"] == VERDICT


def test_what_is_about_the_run_is_left_out() -> None:
    bar = new_output("stream", name="stderr", text="100%|####| 9/9 [00:01<00:00, 8.1it/s]")
    start = new_code_cell('cu.ready("07")', outputs=[new_output("stream", text="2 cores")])
    text = new_markdown_cell("Fine.<!-- notebook -->\nRun the cell.<!-- end --> More.")
    _, *cells, text = made_of(new_code_cell("x", outputs=[bar]), start, text).cells
    assert [cell.outputs for cell in cells] == [[], []]
    assert text.source == "Fine. More."
