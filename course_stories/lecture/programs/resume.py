"""A training that is killed in the middle of an epoch, and one that nobody kills."""

import multiprocessing
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from course_stories.lecture import Finding
from course_stories.small_training import Training
from course_utils.teaching.notebook import data_path
from keepfed.loaders.resume import load_checkpoint, save_checkpoint
from keepfed.measure.spans import stage
from keepfed.measure.trace import Trace, record

EPOCHS, KILLED_AFTER = 2, 23


def run() -> Finding:
    """Train without a break; then kill another one, and go on from its checkpoint."""
    traces, ends = {}, {}
    with TemporaryDirectory(ignore_cleanup_errors=True) as room:
        killed, whole = (str(Path(room, f"{name}.pt")) for name in ("killed", "whole"))
        traces["nobody kills it"] = live(whole, 2)
        first = multiprocessing.Process(target=live, args=(killed, 2, KILLED_AFTER))
        first.start()
        first.join()
        traces["after the kill, no workers"] = live(killed, 0)
        ends = {name: load_checkpoint(name) or {} for name in (whole, killed)}
    same = {key: ends[whole][key] == ends[killed][key] for key in ("events", "losses")}
    steps = len(ends[whole]["losses"])
    return Finding(
        f"Killed after {KILLED_AFTER} of {steps} steps with two workers, gone on without: "
        f"{'the same' if same['events'] else 'not the same'} events in the same order, and "
        f"{'the same' if same['losses'] else 'other'} losses to the last digit.",
        traces,
        [
            ["", "steps", "last loss"],
            *(
                [name, str(len(end["losses"])), repr(end["losses"][-1])]
                for name, end in zip(("nobody kills it", "killed"), ends.values(), strict=True)
            ),
        ],
    )


def live(path: str, workers: int, die_after: int | None = None) -> Trace:
    """Go on from the checkpoint in `path`, if there is one; kill the process on the way."""
    training = Training(data_path("events", "S"), workers=workers)
    if saved := load_checkpoint(path):
        training.load_state_dict(saved)
    with record() as trace:
        while training.batches.epoch.value < EPOCHS:
            for batch in training.batches.follow(trace.batches(training.loader, "index")):
                with stage("compute"):
                    training.step(batch)
                save_checkpoint(path, training.state_dict())
                if len(training.losses) == die_after:
                    psutil.Process().kill()  # nobody can say goodbye
    return trace
