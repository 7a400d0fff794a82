"""A training that is killed in the middle of an epoch and resumed, and one without a kill."""

import multiprocessing
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from course_utils.stories.lecture import Finding
from course_utils.stories.small_training import Training
from course_utils.teaching.notebook import data_path
from keepfed.loaders.resume import load_checkpoint, save_checkpoint
from keepfed.measure.spans import stage
from keepfed.measure.trace import Trace, record

EPOCHS, KILLED_AFTER = 2, 23


def run() -> Finding:
    """Train without interruption, then kill another training and resume its checkpoint."""
    traces, ends = {}, {}
    with TemporaryDirectory(ignore_cleanup_errors=True) as room:
        killed, whole = (str(Path(room, f"{name}.pt")) for name in ("killed", "whole"))
        traces["not killed"] = train(whole, 2)
        first = multiprocessing.Process(target=train, args=(killed, 2, KILLED_AFTER))
        first.start()
        first.join()
        traces["after the kill, no workers"] = train(killed, 0)
        ends = {name: load_checkpoint(name) or {} for name in (whole, killed)}
    same = {key: ends[whole][key] == ends[killed][key] for key in ("events", "losses")}
    steps = len(ends[whole]["losses"])
    return Finding(
        f"A training with two workers was killed after {KILLED_AFTER} of {steps} steps and resumed "
        f"without workers. Its events {'are' if same['events'] else 'are not'} the same, in the "
        f"same order. Its losses {'are' if same['losses'] else 'are not'} the same to the last "
        "digit.",
        traces,
        [
            ["", "steps", "last loss"],
            *(
                [name, str(len(end["losses"])), repr(end["losses"][-1])]
                for name, end in zip(("not killed", "killed"), ends.values(), strict=True)
            ),
        ],
    )


def train(path: str, workers: int, die_after: int | None = None) -> Trace:
    """Resume from the checkpoint in `path` if it exists, and kill the process on the way."""
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
                    psutil.Process().kill()  # without any cleanup
    return trace
