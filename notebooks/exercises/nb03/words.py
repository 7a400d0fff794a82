"""Checks of notebook 03. Here: the flaws of a benchmark, and which tool answers which question."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from course_utils.teaching.exercise import Verdict, exercise, expect, right

# statement -> why it is a flaw
FLAWS = {
    "a": "Look at the distinct samples: every worker walks over all the data, so two workers serve "
    "each sample twice.",
    "b": "The first run reads from the storage, the later ones find everything in the page cache.",
    "c": "The clock starts before the workers do. Over such a short run their start weighs as much "
    "as the loading.",
    "d": "One run says nothing about its spread, and a fixed order gives the later runs whatever "
    "the earlier ones leave behind.",
}
# statement -> why it is none
SOUND = {
    "e": "There is no device in it. Synchronising belongs to the timing of a step.",
    "f": "A loader on its own is half of the differential test, and the right thing to time here.",
    "g": "A burst of prefetched batches needs a pause in which they pile up. Here the clock "
    "started first, and nobody paused.",
    "h": "perf_counter never jumps and counts nanoseconds: it is the clock to use.",
}


@exercise("03.3", title="List the flaws of a benchmark")
def list_the_flaws(answer: Iterable[str] | str) -> Verdict:
    """Compare the letters of the statements with those that are true."""
    letters = {str(one).strip().lower() for one in answer} - {"", ","}
    unknown = sorted(letters - FLAWS.keys() - SOUND.keys())
    expect(
        not unknown,
        f"{unknown[0] if unknown else None!r} is not among the statements.",
        'Give the letters of those that are flaws: {"a", "h"}.',
    )
    hits = sum((letter in FLAWS) == (letter in letters) for letter in (*FLAWS, *SOUND))
    score = f"{hits} of {len(FLAWS) + len(SOUND)} statements are judged right."
    for letter, reason in SOUND.items():
        expect(
            letter not in letters,
            f"{score} One that you call a flaw is none: {reason}",
            "Ask of each statement: would the number change if this were mended?",
        )
    for letter, reason in FLAWS.items():
        expect(
            letter in letters,
            f"{score} You left out a flaw. {reason}",
            "Find the statement that says so.",
        )
    return right(
        "Duplicates, a warm cache, the start of the workers, a single run in a fixed order: any "
        "one of them is enough to find a speed-up that is not there."
    )


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
    for question, (tool, reason) in QUESTIONS.items():
        said = answers.get(question)
        expect(
            said in TOOLS,
            f"{said!r} is not among the tools.",
            f"For {question!r} choose one of: {', '.join(TOOLS)}.",
        )
        idea = MISSES.get((question, str(said)), reason)
        expect(said == tool, f"{question}: {said} does not tell. {idea}", "Choose another tool.")
    return right("Each of them is blind to what the next one sees: so name the question first.")
