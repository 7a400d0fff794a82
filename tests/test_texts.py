import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from course_utils.command import cli
from course_utils.paths import REPO
from keepfed import command


def files(*patterns: str) -> list[Path]:
    return [path for pattern in patterns for path in sorted(REPO.glob(pattern))]


TEXTS = files("README.md", "docs/*.md", "notebooks/source/*.py")
# texts in which people find commands
GUIDES = [*TEXTS, *files("CONTRIBUTING.md", "keepfed/README.md", "deploy/*.md", "slides/*.md")]
FILES = re.compile(
    r"(?<![\w./])(?:course_utils|data_scripts|notebooks|benchmarks|tests|docs)/[\w/]+\.\w+"
)
OURS = "course_utils|data_scripts|keepfed"
MODULES = re.compile(rf"[`\"]((?:{OURS})(?:\.[a-z_]+)+)[`\"]")
HOLDS = re.compile(r"`(\w+)`\s(?:\w+,?\s){0,4}?(?:in|from)\s`(course_utils/[\w/]+\.py)`")


def test_files_and_modules_named_in_texts_exist() -> None:
    for text in TEXTS:
        prose = text.read_text("utf-8").replace("\n# ", " ")
        named = [name for name in FILES.findall(prose) if "/built/" not in name]
        assert [name for name in named if not (REPO / name).exists()] == [], text
        assert [name for name in MODULES.findall(prose) if not _module(name)] == [], text
        for name, file in HOLDS.findall(prose):
            code = (REPO / file).read_text("utf-8")
            assert re.search(rf"^(?:def |class )?{name}\b", code, re.M), text


def _module(name: str) -> bool:
    """Return whether `name` is a module, or a style sheet of matplotlib."""
    try:
        style = (REPO / name.replace(".", "/")).with_suffix(".mplstyle")
        return find_spec(name) is not None or style.exists()
    except ModuleNotFoundError:
        return False


COMMAND = re.compile(
    r"(?:^|`|\n)(?:# )?!?(?:\.venv/bin/)?"
    r"((?:(?:course|keepfed) [a-z]|make [a-zA-Z]|python -m )[^`\n]*)"
)
PROGRAM = re.compile(r"python |torchrun|\.py|-m |#|<|\.\.\.|…")  # begins another command line


def test_commands_in_texts_have_their_names_and_options(capsys: pytest.CaptureFixture[str]) -> None:
    targets = {*re.findall(r"^([a-z-]+):", (REPO / "Makefile").read_text("utf-8"), re.MULTILINE)}
    unknown = []
    for text in GUIDES:
        for line in COMMAND.findall(text.read_text("utf-8")):
            program, name, *words = line.split()
            if program == "make":
                goals = [word for word in (name, *words) if "=" not in word]
                right = goals == [] or goals[0] in targets
            elif program == "python":
                right = not re.match(f"(?:{OURS})\\.", words[0]) or _module(words[0])
            else:
                help_text = _help(program, name.rstrip(",."), capsys)
                own = PROGRAM.split(line, maxsplit=1)[0]
                options = re.findall(r"--[a-z-]+", own)
                right = bool(help_text) and all(option in help_text for option in options)
            if not right:
                unknown.append((text.name, line))
    assert unknown == []


def _help(program: str, name: str, capsys: pytest.CaptureFixture[str]) -> str:
    main = {"course": cli.main, "keepfed": command.main}[program]
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    shown = capsys.readouterr().out
    return "" if ended.value.code else shown


def test_no_text_says_what_people_say_whom_nobody_asked() -> None:
    told = re.compile(
        r"\b(?:Most|Many|Some|Few|People)\b(?: (?:people|learners|students|of them))? "
        r"(?:say|guess|answer|believe|expect|forget|think|take|write|call|conclude|add|start)\b"
        r"|of the hands|[Mm]any people|[Pp]eople (?:who )?(?:say|expect)"
        r"|a common (?:warning|answer)"
    )
    texts = files(
        "slides/*.md", "slides/instructor/*.md", "docs/*.md", "notebooks/source/*.py", "*.md"
    )
    said = {path: told.findall(path.read_text("utf-8")) for path in texts}
    assert {path: words for path, words in said.items() if words} == {}
