"""Run the course from a terminal: `course lab` opens it, the other verbs help."""

import argparse
import contextlib
import os
import secrets
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from textwrap import fill

from course_utils import paths, words
from course_utils.command import lab, workfolder
from course_utils.errors import CourseError, sentence

_FIRST = "work/00_start_here.ipynb"
_LEGIBLE = "abcdefghjkmnpqrstuvwxyz23456789"
_SHARDS = "shards.json"  # the list that `write_shards` writes: its module needs torch


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command of the course and return its exit code."""
    arguments = _parser().parse_args(argv)
    command: Callable[[argparse.Namespace], int] = arguments.command
    try:
        return command(arguments)
    except (CourseError, OSError) as error:
        print(f"course: {sentence(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped.", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="course", description=__doc__)
    commands = parser.add_subparsers(
        required=True,
        metavar="lab | doctor | data | check | stage | serve | watch | why | capstone | demo | "
        "leaderboard",
    )
    sized = argparse.ArgumentParser(add_help=False)
    sized.add_argument("--size", choices=paths.SIZES, help="how much data (default: M)")

    command = commands.add_parser("lab", parents=[sized], help="open the notebooks in JupyterLab")
    command.add_argument("--fresh", metavar="NN", help="put a new notebook NN beside your own")
    command.add_argument("--port", type=int, help="port to serve on (default: first free one)")
    command.add_argument("--ip", default="127.0.0.1", help="address to serve on, in a container")
    command.add_argument("--no-browser", action="store_true", help="serve without opening a window")
    command.set_defaults(command=_lab)
    command = commands.add_parser("doctor", help="show what this machine has to offer")
    command.set_defaults(command=_doctor)
    command = commands.add_parser("data", parents=[sized], help="make the data")
    command.set_defaults(command=_data)
    command = commands.add_parser("check", help="verify the installation")
    command.set_defaults(command=_check)
    command = commands.add_parser("stage", help="copy data to /dev/shm for all jobs here")
    command.add_argument("path", nargs="?", help="file, folder, or URL of fsspec")
    command.add_argument("--to", metavar="DIR", help="keep copies there (default: /dev/shm)")
    command.add_argument("--list", action="store_true", help="show what is staged")
    command.add_argument("--remove", action="store_true", help="remove the copy of PATH")
    command.add_argument("--all", action="store_true", help="with --remove: all of your copies")
    command.set_defaults(command=_stage)
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
    command = commands.add_parser(
        "watch",
        help="run a training and say what each of its loaders cost it",
        usage="course watch [--live] [--out DIR] python train.py ... | torchrun ... | -m MODULE\n"
        "       course watch --report DIR",
    )
    command.add_argument("--live", action="store_true", help="show a line meanwhile")
    command.add_argument("--out", metavar="DIR", help="for page and trace (default: course-watch)")
    command.add_argument("--report", metavar="DIR", help="make the report of a kept record")
    command.add_argument("-m", dest="module", nargs=argparse.REMAINDER, help="run a module")
    command.add_argument("program", nargs=argparse.REMAINDER, help="as you run it without this")
    command.set_defaults(command=_watch)
    command = commands.add_parser("why", help="say what a message means, and what to do")
    command.add_argument("text", nargs="*", help="the message; a log is read by `why < log`")
    command.set_defaults(command=_why)
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
    shipped, work, state = (paths.REPO / name for name in ("notebooks", "work", ".jupyter"))
    if arguments.fresh:
        copy = workfolder.hand_out_beside(shipped, work, number=arguments.fresh)
        print(f"The new version is {copy.relative_to(paths.REPO)}; your own is as it was.")
        return 0
    if code := _data(arguments):
        return code
    _tell(workfolder.hand_out(shipped, work))
    if url := lab.running(state, _FIRST):
        _show(url, arguments)
        return 0
    for ending in ("SIGTERM", "SIGHUP"):  # a closed terminal ends JupyterLab too
        if hasattr(signal, ending):
            signal.signal(getattr(signal, ending), signal.default_int_handler)
    with lab.serve(paths.REPO, _FIRST, state=state, port=arguments.port, ip=arguments.ip) as server:
        _show(server.url, arguments)
        print("It runs until you press Ctrl-C here.", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            server.process.wait()
    print("JupyterLab has ended; your notebooks are in work/.")
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
    from course_utils.teaching.notebook import DATA_SETS, make_data

    for name in DATA_SETS:
        if code := make_data(name):
            return code
    return 0


def _check(arguments: argparse.Namespace) -> int:
    from course_utils.command.installation import findings

    wrong = 0
    for finding in findings():
        print(finding, flush=True)
        wrong += finding.is_wrong
    print("All is well." if not wrong else f"{wrong} to mend; each line above says how.")
    return 1 if wrong else 0


def _stage(arguments: argparse.Namespace) -> int:
    from course_utils.loading import staging

    if arguments.remove:
        copies = staging.staged_copies(arguments.path, to=arguments.to)
        found = f"{len(copies)} staged, {words.size(sum(copy.seal['bytes'] for copy in copies))}"
        if arguments.path and not copies:
            raise CourseError(
                f"There is no copy of {arguments.path}; `course stage --list` shows what is staged."
            )
        if not arguments.path and not arguments.all:
            raise CourseError(
                f"{found}, for whichever project; name what to remove, or add --all to remove all."
            )
        if not staging.unstage(arguments.path, to=arguments.to):
            raise CourseError("A job uses a copy, which stays until it ends; then remove it again.")
        print(f"Removed: {found}.")
    elif arguments.path:
        staged = staging.stage_to_shm(arguments.path, to=arguments.to)
        staged.keep()
        print(repr(staged))
    elif not arguments.list:
        raise CourseError("Name what is to be staged, or add --list or --remove.")
    if arguments.list:
        copies = staging.staged_copies(to=arguments.to)
        print("\n".join(map(str, copies)) or "Nothing is staged.")
    return 0


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
    from course_utils.teaching.leaderboard import board_address, network_address, serve_board

    path = Path(arguments.file or paths.REPO / "work" / "leaderboard.json")
    here = arguments.lan is None
    address = "127.0.0.1" if here else arguments.lan or network_address()
    # short, and without letters that look alike: it is typed from a blackboard
    token = os.environ.get("COURSE_TOKEN") or "".join(map(secrets.choice, [_LEGIBLE] * 8))

    def show(port: int) -> None:
        reach = "this machine alone; --lan is for a class" if here else "all who have its token"
        print(f"The board, for {reach}: {board_address(port, address, token)}")
        print(f"  It is kept in {path}; take a line out of that file to take a name off.")
        print("It runs until you press Ctrl-C here.", flush=True)

    with contextlib.suppress(KeyboardInterrupt):
        serve_board(path, token=token, ready=show, port=arguments.port, address=address)
    print(f"The board has ended; it is in {path}.")
    return 0


def _watch(arguments: argparse.Namespace) -> int:
    from course_utils.measure.watch import report_later, run_watched

    if arguments.report:
        print(report_later(Path(arguments.report)))
        return 0
    program = [word for word in arguments.program[:1] if word != "--"] + arguments.program[1:]
    if arguments.module:
        program = [sys.executable, "-m", *arguments.module]
    if not program:
        raise CourseError("Say what to run, such as `course watch python train.py`.")
    # where each rank is started by a `course watch` of its own
    rank = os.environ.get("RANK") or os.environ.get("SLURM_PROCID")
    default = f"course-watch-{rank}" if rank else "course-watch"
    return run_watched(program, Path(arguments.out or default), live=arguments.live)


def _why(arguments: argparse.Namespace) -> int:
    from course_utils.teaching.field_guide import NOT_KNOWN, look_up

    text = " ".join(arguments.text)
    if not text and not sys.stdin.isatty():
        text = sys.stdin.buffer.read().decode("utf-8", "replace")
    if not text.strip():
        raise CourseError('Say which message, `course why "..."`, or `course why < log`.')
    found = look_up(text)
    print("\n\n".join(map(str, found)) or fill(f"Not known. {NOT_KNOWN}", 98))
    return 0 if found else 1


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
    from course_utils.teaching import lecture

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
