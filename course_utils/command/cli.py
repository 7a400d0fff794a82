"""Run the course from a terminal: `course lab` opens it, the other verbs help."""

import argparse
import contextlib
import os
import secrets
import shutil
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from course_utils import paths
from course_utils.command import lab, workfolder
from course_utils.errors import CourseError
from keepfed import __version__
from keepfed import command as light
from keepfed.files import replace_file
from keepfed.words import plural, size

_FIRST = "work/00_start_here.ipynb"
_LEGIBLE = "abcdefghjkmnpqrstuvwxyz23456789"
_SHARDS = "shards.json"  # the list that `write_shards` writes: its module needs torch


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command of the course and return its exit code."""
    elsewhere = "put the project in a folder of your own, or set COURSE_HOME"
    return light.run(_parser(), argv, install="keepfed[course]", elsewhere=elsewhere)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="course", description=__doc__)
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(
        required=True,
        metavar="lab | hand-out | doctor | data | check | stage | serve | watch | why | capstone | "
        "demo | leaderboard | page",
    )
    sized = argparse.ArgumentParser(add_help=False)
    sized.add_argument("--size", choices=paths.SIZES, help="how much data (default: M)")

    command = commands.add_parser("lab", parents=[sized], help="open the notebooks in JupyterLab")
    command.add_argument("--fresh", metavar="NN", help="put a new notebook NN beside your own")
    command.add_argument("--port", type=int, help="port to serve on (default: first free one)")
    command.add_argument("--ip", default="127.0.0.1", help="address to serve on, in a container")
    command.add_argument("--no-browser", action="store_true", help="serve without opening a window")
    command.set_defaults(command=_lab)
    command = commands.add_parser("hand-out", help="copy the notebooks to a folder of yours")
    command.add_argument("folder", metavar="DIR", help="files that are there are not overwritten")
    command.set_defaults(command=_hand_out)
    command = commands.add_parser("doctor", help="show what this machine has to offer")
    command.set_defaults(command=_doctor)
    command = commands.add_parser("data", parents=[sized], help="make the data")
    command.set_defaults(command=_data)
    command = commands.add_parser("check", help="verify the installation")
    command.set_defaults(command=_check)
    light.add_stage(commands)
    command = commands.add_parser(
        "serve",
        help="serve a folder as an object store would, by HTTP",
        # an option would show it in the list of processes
        epilog="Clients must send a token: that of COURSE_TOKEN, or a new one that is shown here.",
    )
    command.add_argument("folder", metavar="DIR", help="what lies in it can be read, nothing else")
    command.add_argument("--port", type=int, default=0, help="port (default: a free one)")
    command.add_argument("--preset", default="S3", help="whose limits; `none` for none")
    command.add_argument("--break-after", type=float, metavar="MB", help="break off once a file")
    command.set_defaults(command=_serve)
    command = commands.add_parser(
        "leaderboard",
        help="show a class who rescued the training of the capstone",
        epilog="Learners need a token: that of COURSE_TOKEN, or a new one that is shown here.",
    )
    command.add_argument("--file", metavar="PATH", help="default: work/leaderboard.json")
    command.add_argument("--port", type=int, default=8765, help="port (default: 8765)")
    command.add_argument(
        "--lan",
        nargs="?",
        const="",
        metavar="ADDRESS",
        help="let the network reach it, at this address of the machine (default: it finds one)",
    )
    command.set_defaults(command=_leaderboard)
    light.add_watch(commands)
    light.add_why(commands)
    command = commands.add_parser("page", help="save an executed notebook as one HTML file")
    command.add_argument("notebook", metavar="NN", help="number, or the path of a notebook")
    command.add_argument("file", nargs="?", metavar="FILE", help="default: next to the notebook")
    command.set_defaults(command=_page)
    command = commands.add_parser("capstone", help="write the script that a class has to rescue")
    command.add_argument("--seed", type=int, default=0, help="which faults it has (default: 0)")
    command.add_argument("--out", metavar="DIR", default=".", help="folder (default: this one)")
    command.add_argument("--answers", action="store_true", help="say which faults these are")
    command.set_defaults(command=_capstone)
    command = commands.add_parser("demo", help="show a class what a loop does, live or recorded")
    command.add_argument("name", nargs="?", help="which demo (default: list them)")
    command.add_argument("--recorded", action="store_true", help="show its recording at once")
    command.add_argument("--timeout", type=float, metavar="S", help="seconds it may take")
    command.add_argument("--no-browser", action="store_true", help="print where the page is")
    command.add_argument("--record", action="store_true", help="record it anew, or all of them")
    command.set_defaults(command=_demo)
    return parser


def _lab(arguments: argparse.Namespace) -> int:
    home, shipped = paths.course_home(), paths.shipped("notebooks")
    work, state = home / "work", home / ".jupyter"
    if arguments.fresh:
        copy = workfolder.hand_out_beside(shipped, work, number=arguments.fresh)
        lab.trust([copy], state=state)
        print(f"The new version is {copy.relative_to(home)}; your own is as it was.")
        return 0
    if code := _data(arguments):
        return code
    handed_out = workfolder.hand_out(shipped, work)
    lab.trust((work / name for name in (*handed_out.new, *handed_out.refreshed)), state=state)
    _tell(handed_out)
    if url := lab.running(state, _FIRST):
        _show(url, arguments)
        return 0
    for ending in ("SIGTERM", "SIGHUP"):  # a closed terminal ends JupyterLab too
        if hasattr(signal, ending):
            signal.signal(getattr(signal, ending), signal.default_int_handler)
    with lab.serve(home, _FIRST, state=state, port=arguments.port, ip=arguments.ip) as server:
        _show(server.url, arguments)
        print("It runs until you press Ctrl-C here.", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            server.process.wait()
    print(f"JupyterLab has ended; your notebooks are in {work}.")
    return 0


def _hand_out(arguments: argparse.Namespace) -> int:
    folder = Path(arguments.folder)
    handed_out = workfolder.hand_out(paths.shipped("notebooks"), folder)
    lab.trust(folder / name for name in (*handed_out.new, *handed_out.refreshed))
    for name in handed_out.kept:
        print(f"{folder / name} was edited and stays; move it to get the newer version.")
    print(f"The notebooks are in {folder}.")
    return 0


def _tell(handed_out: workfolder.HandedOut) -> None:
    for verb, names in (("new", handed_out.new), ("updated", handed_out.refreshed)):
        if names:
            print(f"Notebooks, {verb}: {', '.join(names)}")
    # `make lab` leaves the environment inactive
    course = "course" if shutil.which("course") else Path(sys.executable).with_name("course")
    for name in handed_out.kept:
        print(f"work/{name} is yours and stays; there is a newer version of it.")
        print(f"  To have it beside yours: {course} lab --fresh {workfolder.number_of(name)}")


def _show(url: str, arguments: argparse.Namespace) -> None:
    print(f"JupyterLab: {url}")
    if not arguments.no_browser and not lab.open_browser(url):
        print("There is no browser here; open this address in one.")


def _doctor(arguments: argparse.Namespace) -> int:
    from course_utils.hardware.machine import probe

    print(probe())
    return 0


def _data(arguments: argparse.Namespace) -> int:
    if arguments.size:
        os.environ["COURSE_SIZE"] = arguments.size
    _name_home()
    from course_utils.teaching.notebook import DATA_SETS, make_data

    for name in DATA_SETS:
        if code := make_data(name):
            return code
    return 0


def _name_home() -> None:
    """Say once where notebooks and data go, if that is not the checkout."""
    home = paths.course_home()
    if not home.exists() and home != paths.REPO:
        print(f"Notebooks and data go to {home}; set COURSE_HOME for another place.", flush=True)
        home.mkdir(parents=True)


def _check(arguments: argparse.Namespace) -> int:
    from course_utils.command.installation import findings

    wrong = 0
    for finding in findings():
        print(finding, flush=True)
        wrong += finding.is_wrong
    print("All is well." if not wrong else f"{wrong} to mend; each line above says how.")
    return 1 if wrong else 0


def _serve(arguments: argparse.Namespace) -> int:
    from course_utils.hardware.object_store import address, serve
    from course_utils.hardware.storage import storage_preset

    try:
        preset = None if arguments.preset == "none" else storage_preset(arguments.preset)
    except ValueError as error:
        raise CourseError(str(error)) from None
    token = os.environ.get("COURSE_TOKEN") or secrets.token_urlsafe(16)

    def show(port: int) -> None:
        limits, browsed = preset or "without limits", address(port, token=token)
        print(f"Serving {arguments.folder}, {limits}: {browsed}")
        print(f'  curl -H "Authorization: Bearer {token}" -O {address(port)}/NAME')
        if Path(arguments.folder, _SHARDS).exists():
            headers = f'{{"Authorization": "Bearer {token}"}}'
            print(f'  stream_shards("{address(port)}", headers={headers})')
        print("It runs until you press Ctrl-C here.", flush=True)

    broken = None if arguments.break_after is None else 1e6 * arguments.break_after
    with contextlib.suppress(KeyboardInterrupt):
        serve(
            arguments.folder,
            preset,
            token=token,
            port=arguments.port,
            break_after=broken,
            ready=show,
        )
    print("The store has ended.")
    return 0


def _leaderboard(arguments: argparse.Namespace) -> int:
    board = import_module("course_stories.leaderboard")

    path = Path(arguments.file or paths.course_home() / "work" / "leaderboard.json")
    here = arguments.lan is None
    address = "127.0.0.1" if here else arguments.lan or board.network_address()
    # short, and without letters that look alike: it is typed from a blackboard
    token = os.environ.get("COURSE_TOKEN") or "".join(map(secrets.choice, [_LEGIBLE] * 8))

    def show(port: int) -> None:
        reach = "this machine alone; --lan is for a class" if here else "all who have its token"
        print(f"The board, for {reach}: {board.board_address(port, address, token)}")
        print(f"  It is kept in {path}; take a line out of that file to take a name off.")
        print("It runs until you press Ctrl-C here.", flush=True)

    with contextlib.suppress(KeyboardInterrupt):
        board.serve_board(path, token=token, ready=show, port=arguments.port, address=address)
    print(f"The board has ended; it is in {path}.")
    return 0


def _page(arguments: argparse.Namespace) -> int:
    from course_utils.command import page

    notebook = page.find_notebook(arguments.notebook, paths.course_home() / "work")
    html, live = page.as_page(notebook)
    file = Path(arguments.file or notebook.with_suffix(".html"))
    replace_file(file, html)
    timelines = f", with {plural(live, 'timeline')} that respond to clicks" if live else ""
    print(f"{file}: {size(file.stat().st_size)}{timelines}. The page needs no network.")
    return 0


def _capstone(arguments: argparse.Namespace) -> int:
    from course_utils.teaching.exercise import problem

    rescue = problem("13")
    script = rescue.hand_out(arguments.seed, arguments.out)
    print(f"{script}: put it beside notebook 13 and change it there; nothing overwrites it.")
    print(f'  cu.check("13.1", "{script.name}") grades it.')
    for fault in rescue.faults_of(arguments.seed) if arguments.answers else ():
        print(f"  {fault.place:9}  {fault.name}. {fault.why}")
    return 0


def _demo(arguments: argparse.Namespace) -> int:
    lecture = import_module("course_stories.lecture")

    name = arguments.name
    if arguments.record:
        for one in [name] if name else lecture.demos():
            print(lecture.record(one), flush=True)
        return 0
    if not name:
        for known, line in lecture.demos().items():
            print(f"{known:11}{lecture.seconds_of(known):3.0f} s  {line}")
        return 0
    if not arguments.recorded:
        about = f"about {lecture.seconds_of(name):.0f} s"
        print(f"The demo runs, for {about}; Ctrl-C shows its recording.", flush=True)
    page, said = lecture.show(name, recorded=arguments.recorded, timeout=arguments.timeout)
    print(f"{said}\nPage: {page}")
    if not arguments.no_browser and not lab.open_browser(page.as_uri()):
        print("There is no browser here; open this page in one.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
