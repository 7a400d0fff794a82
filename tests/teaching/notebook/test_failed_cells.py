"""A check grades no old version of what a failed cell should have defined."""

from collections.abc import Iterator

import pytest
from IPython.core.interactiveshell import InteractiveShell

from course_utils.teaching.exercise import check, exercise, right
from course_utils.teaching.notebook.failed_cells import failed_name, watch_cells

RIGHT = "def double(x):\n    return 2 * x"


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance()
    shell.showtraceback = shell.showsyntaxerror = lambda *_, **__: None
    watch_cells(shell)
    yield shell
    InteractiveShell.clear_instance()


@pytest.mark.parametrize("broken", ["def double(x:\n    return", f"{RIGHT}\n1 / 0"])
def test_a_check_refuses_a_function_of_a_failed_cell(shell: InteractiveShell, broken: str) -> None:
    exercise("90.5", title="Double")(lambda _: right("Doubled."))
    shell.run_cell(RIGHT)
    assert check("90.5", shell.user_ns["double"]).status == "right"
    shell.run_cell(broken)
    verdict = check("90.5", shell.user_ns["double"])
    assert verdict.status == "wrong"
    assert "The cell that defines double ended with an error" in verdict.message
    shell.run_cell(RIGHT)
    assert check("90.5", shell.user_ns["double"]).status == "right"


def test_a_failed_magic_cell_counts_and_plain_values_do_not(shell: InteractiveShell) -> None:
    def worker_module(line: str, cell: str) -> None:
        raise ValueError(cell)

    shell.register_magic_function(worker_module, magic_kind="cell")
    shell.run_cell("class Events:\n    pass\nsize = 256")
    shell.run_cell("%%worker_module events\nclass Events:\n    size = 1\nsize = 256")
    assert failed_name(shell.user_ns["Events"]) == "Events"
    assert failed_name(shell.user_ns["size"]) is None
