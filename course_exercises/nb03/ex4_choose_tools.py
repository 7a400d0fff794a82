"""Exercise 03.4: which tool answers which question."""

import re
from collections.abc import Mapping

from course_exercises.judging import expect_known, judge_labels, words_beside
from course_utils.teaching.exercise import Verdict, exercise, todo

TOOLS = ("torch.profiler", "py-spy", "top", "iotop", "pressure", "DFTracer")
KNOWN = {re.sub(r"\W", "", tool.lower()): tool for tool in TOOLS}  # however they are spelled
KNOWN |= {"htop": "top", "procpressure": "pressure"}  # htop is top in colours
QUESTIONS = words_beside(__file__)


@exercise("03.4", title="Which tool answers which question")
def choose_tools(answers: Mapping[str, str]) -> Verdict:
    """Compare the tool named for each question with the one that answers it."""
    if missing := [name for name in QUESTIONS if name not in answers]:
        return todo(f"No tool is named yet for {', '.join(missing)}.")
    letters = {name: re.sub(r"[\W_]", "", str(answers[name]).lower()) for name in QUESTIONS}
    said = {name: KNOWN.get(letters[name], answers[name]) for name in QUESTIONS}
    for question, tool in said.items():
        expect_known([tool], TOOLS, "tools", f"For {question!r} choose one of: {', '.join(TOOLS)}.")

    def objection(question: str) -> tuple[str, str]:
        row, tool = QUESTIONS[question], said[question]
        idea = row.get("close", {}).get(tool, row["why"])
        return f"{question}: {tool} does not tell. {idea}", "Choose another tool."

    return judge_labels(
        said,
        {question: row["tool"] for question, row in QUESTIONS.items()},
        objection,
        "Each of them is blind to what the next one sees: so name the question first.",
    )
