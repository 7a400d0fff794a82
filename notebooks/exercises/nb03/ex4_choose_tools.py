"""Exercise 03.4: which tool answers which question."""

from collections.abc import Mapping

from course_utils.teaching.exercise import Verdict, exercise
from notebooks.exercises.judging import expect_known, judge_labels

TOOLS = ("torch.profiler", "py-spy", "top", "iotop", "pressure", "DFTracer")
QUESTIONS = {
    "kernel": ("torch.profiler", "Only the profiler inside the process sees the GPU's kernels."),
    "line": ("py-spy", "Only py-spy looks into the Python of a process that is running already."),
    "cores": ("top", "The share of a core that each process uses is what top and htop show."),
    "bytes": ("iotop", "Bytes read by each process are what iotop shows, from /proc/PID/io."),
    "stall": (
        "pressure",
        "/proc/pressure says how long anybody on the machine had to wait, not how much was read.",
    ),
    "file": (
        "DFTracer",
        "Which file, which offset, which process, all along the run: that is a tracer of I/O.",
    ),
}
MISSES = {
    ("line", "torch.profiler"): "The profiler has to be in the code from the start, and it sees "
    "the main process, not the workers.",
    ("cores", "torch.profiler"): "The profiler does not see other processes than its own.",
    ("cores", "pressure"): "/proc/pressure speaks of the whole machine, not of one process.",
    ("bytes", "pressure"): "/proc/pressure speaks of waiting, not of bytes, and of no process.",
    ("stall", "iotop"): "Many bytes are not yet a wait, and few bytes may be a long one.",
    ("file", "iotop"): "iotop counts bytes; it does not know which file they came from.",
}


@exercise("03.4", title="Which tool answers which question")
def choose_tools(answers: Mapping[str, str]) -> Verdict:
    """Compare the tool named for each question with the one that answers it."""
    said = {question: answers.get(question) for question in QUESTIONS}
    for question, tool in said.items():
        expect_known([tool], TOOLS, "tools", f"For {question!r} choose one of: {', '.join(TOOLS)}.")

    def objection(question: str) -> tuple[str, str]:
        idea = MISSES.get((question, str(said[question])), QUESTIONS[question][1])
        return f"{question}: {said[question]} does not tell. {idea}", "Choose another tool."

    return judge_labels(
        said,
        {question: tool for question, (tool, _) in QUESTIONS.items()},
        objection,
        "Each of them is blind to what the next one sees: so name the question first.",
    )
