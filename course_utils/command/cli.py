"""Commands of the course: `course lab` opens the notebooks."""

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from course_utils import paths
from course_utils.command import lab, workfolder
from course_utils.errors import INSTALL_AGAIN
from keepfed import command as light
from keepfed.formatting import plural, wrap

_FIRST = "work/00_start_here.ipynb"
_FIRST_DATA = "events"  # the only data that it reads
_OLD = {  # names of earlier versions -> what to use today
    **{name: f"`keepfed {name}`" for name in ("audit", "stage", "watch", "why")},
    "doctor": "`course check`",
    "join": '`cu.ready("00", wall="ADDRESS")` in a cell of a notebook',
    "capstone": "`hand_out(seed)` in a cell of notebook 13",
}
_STOP = "Press Ctrl-C to stop."


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command of the course and return its exit code."""
    words = sys.argv[1:] if argv is None else argv
    if words and words[0] in _OLD:
        print(f"course: `{words[0]}` is now {_OLD[words[0]]}.", file=sys.stderr)
        return 2
    elsewhere = "move the project to your home folder, or set COURSE_HOME"
    return light.run(_parser(), words, install=INSTALL_AGAIN, elsewhere=elsewhere)


def _parser() -> argparse.ArgumentParser:
    parser = light.new_parser("course", __doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    sized = argparse.ArgumentParser(add_help=False)
    sized.add_argument("--size", choices=paths.SIZES, help="data size (default: what exists, or M)")

    def add(name: str, run: Any, *texts: str, **options: Any) -> argparse.ArgumentParser:
        command = light.new_command(commands, name, *texts, **options)
        command.set_defaults(command=run)
        return command

    command = add("lab", _lab, "open the notebooks in JupyterLab", "--size S", parents=[sized])
    command.add_argument("--port", type=int, help="port (default: the first free one)")
    command.add_argument("--ip", default="127.0.0.1", help="address to listen on, e.g. 0.0.0.0")
    command.add_argument("--no-browser", action="store_true", help="do not open a browser")
    command = add("hand-out", _hand_out, "copy the notebooks to a folder", "my-notebooks")
    command.add_argument("folder", metavar="DIR", help="existing files are kept")
    add("data", _data, "make the data", "--size S", parents=[sized])
    add("check", _check, "check machine, installation and data")
    command = add(
        "wall",
        _wall,
        "show a class its guesses, its pace and its results",
        "--lan",
        more="Learners need the token in COURSE_TOKEN, or the new one that is printed.",
    )
    command.add_argument("--port", type=int, default=8765, help="port (default: 8765)")
    command.add_argument(
        "--lan",
        nargs="?",
        const="",
        metavar="ADDRESS",
        help="serve the local network, at this address of the machine (default: detected)",
    )
    command = add("demo", _demo, "show a training loop to a class", "wait")
    command.add_argument("name", nargs="?", help="name of the demo (default: list all)")
    command.add_argument("--recorded", action="store_true", help="show the recording")
    command.add_argument("--timeout", type=float, metavar="S", help="stop the demo after S seconds")
    command.add_argument("--no-browser", action="store_true", help="do not open a browser")
    command.add_argument("--record", action="store_true", help="record this demo again, or all")
    return parser


def _say(text: str, *, indent: int = 0) -> None:
    """Print `text` at the width of the terminal."""
    print(wrap(text, indent=indent), flush=True)


def _lab(arguments: argparse.Namespace) -> int:
    home, shipped = paths.course_home(), paths.shipped("notebooks")
    work, state = home / "work", home / ".jupyter"
    _prepare_home(arguments)
    from course_utils.teaching.notebook import make_data, missing_data

    if is_new := _FIRST_DATA in missing_data():
        _say("Step 2 of 3: creating the data of the first notebook.")
        if code := make_data(_FIRST_DATA):
            return code
    handed_out = workfolder.hand_out(shipped, work)
    lab.trust((work / name for name in (*handed_out.new, *handed_out.refreshed)), state=state)
    _report(handed_out, work)
    if url := lab.running(state, _FIRST):
        if arguments.size:
            _say("JupyterLab is running already. To change the size of its data, stop it first.")
        _show(url, state, arguments)
        return 0
    if is_new:
        _say("Step 3 of 3: opening the notebooks.")
    _interrupt_at_the_end()  # a closed terminal ends JupyterLab too
    with lab.serve(home, _FIRST, state=state, port=arguments.port, ip=arguments.ip) as server:
        _show(server.url, state, arguments)
        _say(_STOP)
        with contextlib.suppress(KeyboardInterrupt):
            server.process.wait()
    _say(f"JupyterLab has stopped. Your notebooks are in {work}.")
    return 0


def _interrupt_at_the_end() -> None:
    """Treat a closed terminal and a request to end like Ctrl-C."""
    for ending in {"SIGTERM", "SIGHUP"} & vars(signal).keys():
        signal.signal(getattr(signal, ending), signal.default_int_handler)


def _hand_out(arguments: argparse.Namespace) -> int:
    folder = Path(arguments.folder)
    handed_out = workfolder.hand_out(paths.shipped("notebooks"), folder)
    lab.trust(folder / name for name in (*handed_out.new, *handed_out.refreshed))
    _report(handed_out, folder)
    _say(f"The notebooks are in {folder}.")
    return 0


def _report(handed_out: workfolder.HandedOut, folder: Path) -> None:
    for verb, names in (("New", handed_out.new), ("Updated", handed_out.refreshed)):
        if names:
            listed = ", ".join(names) if len(names) < 4 else plural(len(names), "notebook")
            _say(f"{verb} in {folder}: {listed}")
    for name in handed_out.kept:
        _say(f"{folder / name} has your changes and was kept. Rename it to get the new version.")


def _show(url: str, state: Path, arguments: argparse.Namespace) -> None:
    print(f"JupyterLab: {url}", flush=True)
    if not arguments.no_browser and not lab.open_browser(lab.hide_token(url, state)):
        _say("Open this address in your browser.")


def _data(arguments: argparse.Namespace) -> int:
    _prepare_home(arguments)
    _interrupt_at_the_end()  # so that it removes unfinished files
    from course_utils.teaching.notebook import DATA_SETS, make_data

    for name in DATA_SETS:
        if code := make_data(name):
            return code
    return 0


def _prepare_home(arguments: argparse.Namespace) -> None:
    """Set the size of the data, and create the folder of notebooks and data, if not a checkout."""
    if arguments.size:
        os.environ["COURSE_SIZE"] = arguments.size
    home = paths.course_home()
    if not home.exists() and home != paths.REPO:
        _say(f"Notebooks and data go to {home}. Set COURSE_HOME to choose another folder.")
        home.mkdir(parents=True)


def _check(arguments: argparse.Namespace) -> int:
    from course_utils.command.installation import findings
    from course_utils.hardware.machine import probe

    print(f"{probe()}\n")
    wrong = 0
    for finding in findings():
        _say(str(finding), indent=18)
        wrong += finding.is_wrong
    _say(f"Problems: {wrong}. Each line above says how to fix one." if wrong else "All is well.")
    return 1 if wrong else 0


def _wall(arguments: argparse.Namespace) -> int:
    wall = import_module("course_utils.stories.wall.server")
    here, file = arguments.lan is None, paths.course_home() / "work" / "wall.jsonl"

    def show(addresses: Mapping[str, str]) -> None:
        reach = "this machine only; add --lan for a class" if here else "everyone with the token"
        _say(f"For {reach}:")
        print(f"  Write on the board: {addresses['page']}")
        print(f"  Projector, and only for you: {addresses['teacher']}")
        _say(f"The posts are in {file}. For a new class, delete it first. {_STOP}")

    wall.serve_wall(
        file,
        ready=show,
        token=os.environ.get("COURSE_TOKEN", ""),
        port=arguments.port,
        address="127.0.0.1" if here else arguments.lan or wall.network_address(),
    )
    _say("The wall has stopped. The next start continues with its posts.")
    return 0


def _demo(arguments: argparse.Namespace) -> int:
    lecture = import_module("course_utils.stories.lecture")

    name = arguments.name
    if arguments.record:
        for one in [name] if name else lecture.demos():
            _say(lecture.record(one))
        return 0
    if not name:
        for known, line in lecture.demos().items():
            _say(f"{known:11}{lecture.seconds_of(known):3.0f} s  {line}", indent=18)
        return 0
    if not arguments.recorded:
        seconds = lecture.seconds_of(name)
        _say(f"The demo takes about {seconds:.0f} s. Press Ctrl-C to see its recording instead.")
    page, said = lecture.show(name, recorded=arguments.recorded, timeout=arguments.timeout)
    _say(f"{said}\nPage: {page}")
    if not arguments.no_browser and not lab.open_browser(page.as_uri()):
        _say("Open this page in your browser.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
