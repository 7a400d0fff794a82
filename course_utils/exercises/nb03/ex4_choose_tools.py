"""Exercise 03.4: which tool answers which question."""

import re
from collections.abc import Mapping

from course_utils.exercises.judging import expect_known, judge_labels, read_labels, words_beside
from course_utils.teaching.exercise import Verdict, exercise

TOOLS = ("torch.profiler", "py-spy", "top", "iotop", "pressure", "DFTracer")
SPELLINGS = {re.sub(r"\W", "", tool.lower()): tool for tool in TOOLS}
# htop shows the same as top; the files of pressure are cpu, io and memory
SPELLINGS |= {"htop": "top"}
SPELLINGS |= {f"procpressure{file}": "pressure" for file in ("", "io", "cpu", "memory")}
QUESTIONS = words_beside(__file__)


@exercise("03.4", title="Which tool answers which question", seconds=30)
def choose_tools(answers: Mapping[str, str]) -> Verdict:
    """Compare the tool named for each question with the one that answers it."""
    said = {
        question: SPELLINGS.get(re.sub(r"[\W_]", "", tool.lower()), tool)
        for question, tool in read_labels(answers, QUESTIONS, "tool").items()
    }
    for question, tool in said.items():
        expect_known([tool], TOOLS, "tools", f"For {question!r} choose one of: {', '.join(TOOLS)}.")
    return judge_labels(
        said,
        {question: row["tool"] for question, row in QUESTIONS.items()},
        lambda question: (
            f"{question}: {said[question]} does not answer this. {QUESTIONS[question]['why']}",
            "Choose another tool.",
        ),
        "No tool sees everything, so name the question first.",
    )
