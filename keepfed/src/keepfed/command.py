"""Measure and speed up a training from a terminal: `keepfed watch python train.py`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from keepfed import __version__, formatting
from keepfed.errors import KeepfedError, not_installed, sentence

Commands = Any  # argparse has no public name for what `add_subparsers` returns
JSON: Any = {"action": "store_true", "help": "print the result as a line of JSON"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command, and return its exit code."""
    parser = new_parser("keepfed", __doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for add in (add_watch, add_audit, add_why, add_stage):
        add(commands)
    return run(parser, argv)


def new_parser(name: str, description: str | None) -> argparse.ArgumentParser:
    """Return the parser of a program, without commands."""
    parser = argparse.ArgumentParser(
        prog=name, description=description, epilog=f"Options and examples: {name} COMMAND --help"
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    return parser


def new_command(
    commands: Commands, name: str, words: str, *examples: str, more: str = "", **options: Any
) -> argparse.ArgumentParser:
    """Add a command that does what `words` say. `more` and `examples` end its help text."""
    lines = "".join(f"\n  %(prog)s {example}" for example in examples or [""])
    command: argparse.ArgumentParser = commands.add_parser(
        name,
        help=words,
        description=f"{words[0].upper()}{words[1:]}.",
        epilog=f"{more}\n\nExamples:{lines}".lstrip(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        **options,
    )
    return command


def run(
    parser: argparse.ArgumentParser,
    argv: Sequence[str] | None,
    *,
    install: str = "",
    elsewhere: str = "choose a folder that you may write to",
) -> int:
    """Run the command that `argv` names, and print expected errors as a message on stderr.

    Args:
        parser: Parser of the program.
        argv: Arguments. None for those of this process.
        install: Imperative clause that installs a missing package, if it is not pip.
        elsewhere: Imperative clause that tells how to choose another folder.
    """
    if not (sys.argv[1:] if argv is None else argv):
        parser.print_help(sys.stderr)
        return 2
    arguments = parser.parse_args(argv)
    command: Callable[[argparse.Namespace], int] = arguments.command
    try:
        try:
            code = command(arguments)
            print(end="", flush=True)  # notice a closed pipe here, not when Python exits
            return code
        except ModuleNotFoundError as error:
            raise not_installed(error, install) from error
    except BrokenPipeError:  # for example `keepfed why ... | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (KeepfedError, OSError) as error:
        said = f"{parser.prog}: {sentence(error, elsewhere=elsewhere)}"
        print(formatting.wrap(said), file=sys.stderr)
        return error.code if isinstance(error, KeepfedError) else 1
    except KeyboardInterrupt:
        print("\nStopped.", file=sys.stderr)
        return 130


def add_watch(commands: Commands) -> None:
    """Add the command that runs a training and reports what its loaders cost."""
    command = new_command(
        commands,
        "watch",
        "run a training and report how long it waits for each loader",
        "python train.py --lr 0.1",
        "--lines torchrun --nproc-per-node 4 train.py",
        "-m package.train",
        "--fail-above 20 python train.py",
        usage="%(prog)s [options] python train.py ...\n       %(prog)s [options] -m MODULE ...",
    )
    command.add_argument("--lines", action="store_true", help="name the slowest lines of code")
    command.add_argument("--out", metavar="DIR", help="output folder (default: keepfed-watch)")
    command.add_argument(
        "--fail-above", type=float, metavar="PERCENT", help="exit with 1 if more time is lost"
    )
    command.add_argument("--json", **JSON)
    command.add_argument("-m", dest="module", nargs=argparse.REMAINDER, help="run a module")
    command.add_argument("program", nargs=argparse.REMAINDER, help="your usual command")
    command.set_defaults(command=_watch)


def add_audit(commands: Commands) -> None:
    """Add the command that checks the samples of a training."""
    command = new_command(
        commands,
        "audit",
        "run a training and check that its loaders serve the right samples",
        "python train.py",
        "--allow repeats --json python train.py",
        "--log samples.jsonl torchrun --nproc-per-node 4 train.py",
        usage="%(prog)s [--allow ID] [--log FILE] [--after FILE] [--json] python train.py ...",
    )
    repeated: Any = {"action": "append", "default": []}
    command.add_argument("--allow", metavar="ID", help="do not report what is meant", **repeated)
    command.add_argument("--log", metavar="FILE", help="also list the samples of every batch")
    command.add_argument("--after", metavar="FILE", help="log of the run that this run resumes")
    command.add_argument("--json", **JSON)
    command.add_argument("program", nargs=argparse.REMAINDER, help="your usual command")
    command.set_defaults(command=_audit)


def add_why(commands: Commands) -> None:
    """Add the command that explains a message."""
    command = new_command(
        commands,
        "why",
        "explain an error message and how to fix it",
        '"DataLoader worker is killed by signal: Bus error"',
        "< train.log",
    )
    command.add_argument("text", nargs="*", help="message or words (for a log, `why < log`)")
    command.add_argument("--json", **JSON)
    command.set_defaults(command=_why)


def add_stage(commands: Commands) -> None:
    """Add the command that copies data to /dev/shm."""
    command = new_command(
        commands, "stage", "copy data to /dev/shm", "data/train", "--list", "--remove data/train"
    )
    command.add_argument("path", nargs="?", help="file, folder, or fsspec URL")
    command.add_argument("--to", metavar="DIR", help="folder for copies (default: /dev/shm)")
    command.add_argument("--list", action="store_true", help="list all copies")
    command.add_argument("--remove", action="store_true", help="remove the copy of PATH")
    command.add_argument("--all", action="store_true", help="remove all copies (with --remove)")
    command.set_defaults(command=_stage)


def _watch(arguments: argparse.Namespace) -> int:
    from keepfed.measure.watch import run_watched

    program = [word for word in arguments.program[:1] if word != "--"] + arguments.program[1:]
    if arguments.module:
        program = [sys.executable, "-m", *arguments.module]
    if not program:
        raise KeepfedError("The program is missing. Example: keepfed watch python train.py", code=2)
    # each rank may run in its own `keepfed watch`
    rank = os.environ.get("RANK") or os.environ.get("SLURM_PROCID")
    default = f"keepfed-watch-{rank}" if rank else "keepfed-watch"
    return run_watched(
        program,
        Path(arguments.out or default),
        lines=arguments.lines,
        fail_above=arguments.fail_above,
        as_json=arguments.json,
    )


def _audit(arguments: argparse.Namespace) -> int:
    from keepfed.auditing.program import run_audited

    words = [word for word in arguments.program[:1] if word != "--"] + arguments.program[1:]
    log, after = (Path(file) if file else None for file in (arguments.log, arguments.after))
    options = {"log": log, "after": after, "allow": arguments.allow, "as_json": arguments.json}
    return run_audited(words, **options)


def _why(arguments: argparse.Namespace) -> int:
    from keepfed.field_guide import answer, explain

    text = " ".join(arguments.text)
    if not text and not sys.stdin.isatty():
        text = sys.stdin.buffer.read().decode("utf-8", "replace")
    if not text.strip():
        example = '`keepfed why "Bus error"` or `keepfed why < log`'
        raise KeepfedError(f"No message given. Example: {example}.", code=2)
    known, said = answer(text), explain(text)
    if arguments.json:
        names = "name", "title", "why", "fix"
        entries = [{name: getattr(entry, name) for name in names} for entry in known.entries]
        near = [entry.name for entry in known.near]
        print(json.dumps({"entries": entries, "near": near, "text": said}))
    else:
        encoding = sys.stdout.encoding or "utf-8"  # some terminals lack characters such as "…"
        print(said.encode(encoding, "replace").decode(encoding))
    return 0 if known.entries else 1


def _stage(arguments: argparse.Namespace) -> int:
    from keepfed.loaders import staging

    if arguments.remove:
        copies = staging.staged_copies(arguments.path, to=arguments.to)
        found = f"{len(copies)} staged, {formatting.size(sum(copy.bytes for copy in copies))}"
        if arguments.path and not copies:
            raise KeepfedError(
                f"No copy of {arguments.path} exists. `keepfed stage --list` shows all copies."
            )
        if not arguments.path and not arguments.all:
            raise KeepfedError(
                f"{found}, for all projects. Name the one to remove, or add --all to remove all.",
                code=2,
            )
        for copy in copies:
            copy.unstage()
        print(formatting.wrap(f"Removed: {found}."))
    elif arguments.path:
        staged = staging.stage_to_shm(arguments.path, to=arguments.to)
        print(formatting.wrap(f"Staged {staged}", indent=2))
    elif not arguments.list:
        raise KeepfedError(
            "The path is missing. Give the data to stage, or --list or --remove.", code=2
        )
    if arguments.list:
        copies = staging.staged_copies(to=arguments.to)
        print(formatting.wrap("\n".join(map(str, copies)), indent=2) or "Nothing is staged.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
